//! Services that a producer of the command line begins with.

use exacat_writer_client::{ClientCertificate, Security, WriterSettings};

use crate::args::{Connection, ToServices};
use crate::connect::{data_directory, read_small_file, token};
use crate::failure::Failure;
use crate::parse;

/// File of the data directory with the addresses of the writer service on this machine.
pub(super) const PLACE: &str = "writer.json";
/// Bytes of the file with the addresses of a service.
const PLACE_BYTES_MAX: u64 = 64 << 10;

/// Returns the addresses of the writer service that runs on this machine.
pub(super) fn here(connection: &Connection) -> Result<serde_json::Value, Failure> {
    let path = data_directory(connection)?.join(PLACE);
    if !path.exists() {
        return Err(Failure::local(
            "no writer service runs on this machine with this data directory: start one \
             (exacat writer serve), or name one (--service HOST:PORT)",
        ));
    }
    let text = read_small_file(&path, PLACE_BYTES_MAX)?;
    serde_json::from_str(&text).map_err(|error| Failure::local(format!("{}: {error}", path.display())))
}

/// Returns the token to show: the given one, or that of the administrator of a catalogue on this machine.
pub(super) fn token_of(connection: &Connection) -> Result<Option<String>, Failure> {
    if let Some(token) = token(connection)? {
        return Ok(Some(token));
    }
    let path = data_directory(connection)?.join("admin.token");
    let text = path.exists().then(|| read_small_file(&path, PLACE_BYTES_MAX)).transpose()?;
    Ok(text.map(|text| text.trim().to_owned()))
}

/// Returns the settings of a producer.
pub(super) fn settings(
    to: &ToServices,
    connection: &Connection,
    name: &str,
) -> Result<WriterSettings, Failure> {
    let seeds = match to.service.is_empty() {
        false => to.service.clone(),
        true => here(connection)?["address"].as_str().map(str::to_owned).into_iter().collect(),
    };
    let certificate = to.client_certificate.clone().zip(to.client_key.clone());
    let certificate = certificate.map(|(chain, key)| ClientCertificate { chain, key });
    let security = match &to.service_ca {
        None => Security::Plain,
        Some(file) => {
            Security::tls(file, certificate.as_ref()).map_err(|error| Failure::local(error.to_string()))?
        }
    };
    let memory = parse::bytes(&to.memory).map_err(|error| Failure::local(format!("--memory: {error}")))?;
    let mut settings = WriterSettings::new(seeds, security);
    settings.name = name.to_owned();
    settings.memory_bytes = usize::try_from(memory).unwrap_or(usize::MAX);
    settings.token = match certificate {
        // The administrator's token would count before it.
        Some(_) => token(connection)?,
        None => token_of(connection)?,
    };
    Ok(settings)
}
