//! Opens the volumes of a service. On a shared file system another service may have them, and returns them.

use std::sync::Arc;
use std::time::Instant;

use exacat_disk::{Disk, cannot_write, replace_small};
use exacat_model::{ErrorKind, Result};
use exacat_writer::{Recovered, Volume, VolumeSettings};

use crate::clock::wall_time;
use crate::limits::{RETURN_LOOK_EVERY, RETURN_TIME_MAX};

/// File in a volume: its own service is back, and waits for it.
pub(crate) const WANTED: &str = "WANTED";

/// Opens a volume of the service. One that another service has taken over is asked for, and waited for.
pub(crate) async fn open_volume(
    disk: &Arc<dyn Disk>,
    of: &VolumeSettings,
    is_shared: bool,
) -> Result<(Volume, Recovered)> {
    let begun = Instant::now();
    let mut has_told = false;
    loop {
        match Volume::open(Arc::clone(disk), of, wall_time()) {
            Err(error)
                if is_shared && error.kind == ErrorKind::Unavailable && begun.elapsed() < RETURN_TIME_MAX =>
            {
                if !has_told {
                    let volume = of.root.display();
                    tracing::info!(%volume, "another service may have this volume: it is asked to return it");
                }
                has_told = true;
                let text = format!("service {} waits for this volume\n", of.service);
                replace_small(&**disk, &of.root, WANTED, text.as_bytes())
                    .map_err(|error| cannot_write(&of.root.join(WANTED), &error))?;
                tokio::time::sleep(RETURN_LOOK_EVERY).await;
            }
            Err(error) => return Err(error),
            Ok(opened) => {
                let mark = of.root.join(WANTED);
                match disk.remove(&mark) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(cannot_write(&mark, &error));
                    }
                    _ => return Ok(opened),
                }
            }
        }
    }
}
