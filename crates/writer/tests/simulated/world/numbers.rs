//! State and numbers of the simulated world, for messages and for tests.

use exacat_writer::FileStage;

use super::World;

impl World {
    /// Returns all that is not done, in words.
    pub(super) fn state(&self) -> String {
        let mut text = String::new();
        for source in &self.sources {
            let (left, files) = (source.events_left, source.producer.uncertified());
            text.push_str(&format!("\n{left} events left, {files:?}"));
        }
        for node in &self.nodes {
            let Some((_, service)) = &node.running else {
                text.push_str("\nnot running");
                continue;
            };
            for file in service.files_page(None, None, 1_000, self.now).files {
                if file.stage < FileStage::Certified || self.remaining().contains(&file.file) {
                    text.push_str(&format!("\n{:?}: {file:?}", node.id));
                }
            }
        }
        text
    }

    /// Returns the number of chunks that were durable in several parts.
    pub(crate) fn duplicates(&self) -> u64 {
        self.catalogue.values().map(|certificate| certificate.duplicates).sum()
    }

    /// Returns the largest number of parts that a file has.
    pub(crate) fn parts_per_file_max(&self) -> usize {
        self.catalogue.values().map(|certificate| certificate.shares().len()).max().unwrap_or(0)
    }
}
