//! Named presets: the options of frequent kinds of listings, as data.
//!
//! A preset has only general options; the user's own options override it.

use exacat_model::operation::Existing;
use exacat_model::{Lfn, SeName};

use crate::columns::Columns;
use crate::error::Error;
use crate::import::ImportOptions;
use crate::options::{Repeats, Rest, RowKind};
use crate::records::Format;

/// Options of a kind of listing.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Purpose, in one line.
    pub about: &'static str,
    format: Option<Format>,
    columns: Option<&'static str>,
    auto_columns: bool,
    rest: Rest,
    kind: RowKind,
    prefix: Option<&'static str>,
    collection_prefix: Option<&'static str>,
    se: Option<&'static str>,
    se_auto: bool,
    pfn_same: Option<&'static str>,
    repeats: Repeats,
    existing: Existing,
}

const PLAIN: Preset = Preset {
    name: "",
    about: "",
    format: None,
    columns: None,
    auto_columns: true,
    rest: Rest::Ignore,
    kind: RowKind::File,
    prefix: None,
    collection_prefix: None,
    se: None,
    se_auto: false,
    pfn_same: None,
    repeats: Repeats::Reject,
    existing: Existing::Same,
};

/// All presets.
pub const PRESETS: [Preset; 7] = [
    Preset {
        name: "lfn-list",
        about: "bare LFNs, one a line, or a table with a column lfn; nothing else is taken",
        columns: None,
        ..PLAIN
    },
    Preset {
        name: "odp-files",
        about: "files of the CERN Open Data portal: lfn, size, checksum, pfn; '=' as PFN is the LFN at EOS public",
        se: Some("CERN_EOSPUBLIC"),
        se_auto: true,
        pfn_same: Some("root://eospublic.cern.ch/"),
        ..PLAIN
    },
    Preset {
        name: "odp-datasets",
        about: "records of the CERN Open Data portal as collections below /collections/opendata, metadata as tags",
        format: Some(Format::JsonLines),
        columns: Some("id=lfn"),
        auto_columns: false,
        rest: Rest::Tags,
        kind: RowKind::Collection,
        prefix: Some("/collections/opendata"),
        existing: Existing::Merge,
        ..PLAIN
    },
    Preset {
        name: "odp-members",
        about: "the same table as odp-files: puts files that are in already into the collections of odp-datasets",
        columns: Some("lfn=lfn,dataset=collection"),
        auto_columns: false,
        kind: RowKind::Member,
        collection_prefix: Some("/collections/opendata"),
        ..PLAIN
    },
    Preset {
        name: "annex",
        about: "files of git-annex repositories: replicas are location ids, taken as SE names; PFNs by host",
        se_auto: true,
        existing: Existing::Merge,
        ..PLAIN
    },
    Preset {
        name: "dune-transfers",
        about: "transfers: each row is a new replica of the file `name`, below /dune, on the SE `dst`",
        columns: Some("name=lfn,size=size,dst=se"),
        auto_columns: false,
        prefix: Some("/dune"),
        se_auto: true,
        repeats: Repeats::Keep,
        existing: Existing::Merge,
        ..PLAIN
    },
    Preset {
        name: "rucio-replicas",
        about: "lfn, size, checksum, rse, pfn: one row for each replica, flat names below /rucio",
        prefix: Some("/rucio"),
        se_auto: true,
        repeats: Repeats::Keep,
        existing: Existing::Merge,
        ..PLAIN
    },
];

impl Preset {
    /// Returns the preset of that name.
    pub fn named(name: &str) -> Result<&'static Preset, Error> {
        PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| {
            let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
            Error::options(format!("not a preset ({}): {name:.100?}", names.join(", ")))
        })
    }

    /// Returns its options.
    pub fn options(&self) -> Result<ImportOptions, Error> {
        let mut options = ImportOptions { existing: self.existing, ..ImportOptions::default() };
        let listing = &mut options.listing;
        listing.format = self.format;
        listing.columns = self.columns.map(Columns::parse).transpose()?;
        listing.auto_columns = self.auto_columns;
        listing.rest = self.rest;
        listing.kind = self.kind;
        listing.prefix = self.prefix.map(Lfn::parse).transpose()?;
        listing.collection_prefix = self.collection_prefix.map(Lfn::parse).transpose()?;
        listing.se = self.se.map(SeName::parse).transpose()?;
        listing.se_auto = self.se_auto;
        listing.pfn_same = self.pfn_same.map(str::to_owned);
        listing.repeats = self.repeats;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_a_name_of_its_own_and_valid_options() {
        for (index, preset) in PRESETS.iter().enumerate() {
            assert!(!preset.name.is_empty() && !preset.about.is_empty());
            assert!(PRESETS[..index].iter().all(|other| other.name != preset.name));
            preset.options().unwrap();
            assert_eq!(Preset::named(preset.name).unwrap().name, preset.name);
        }
        assert!(Preset::named("nothing").unwrap_err().to_string().contains("odp-files"));
    }
}
