//! Services behind the addresses that the caller gave: greeted once, to learn who they are and whom they
//! know.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use exacat_wire::native::Secret;
use exacat_wire::writer::{
    Frame, FrameDecoder, Hello, Received, Role, ServiceId, ServiceRecord, ServiceState, Table, WriterId,
    encode,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::dial::dial;
use crate::shared::Shared;

/// Shortest pause between two rounds.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Asks seeds until each has answered. All are asked again while no service can be reached. The first answer
/// goes to `first`.
pub(crate) async fn follow(shared: Arc<Shared>, first: SyncSender<()>) {
    let mut waiting: Vec<String> = shared.settings.seeds.clone();
    loop {
        let is_lost = {
            let producer = shared.producer.lock();
            producer.uncertified_files() > 0 && producer.linked().is_empty()
        };
        let round = if is_lost { shared.settings.seeds.clone() } else { waiting.clone() };
        let mut asked = JoinSet::new();
        for address in round {
            let shared = shared.clone();
            asked.spawn(async move {
                let answer =
                    tokio::time::timeout(shared.settings.connect_timeout, ask(&shared, &address)).await;
                let late = || Err(io::Error::other("no answer in time"));
                (address, answer.unwrap_or_else(|_| late()))
            });
        }
        while let Some(answered) = asked.join_next().await {
            let Ok((address, answer)) = answered else { continue };
            match answer {
                Ok(answer) => {
                    shared.forget_trouble(&address);
                    waiting.retain(|other| *other != address);
                    learn(&shared, address, answer);
                    // The connecting thread listens for one answer only.
                    let _ = first.try_send(());
                }
                Err(error) => shared.note_trouble(&address, error.to_string()),
            }
        }
        tokio::time::sleep(shared.settings.retry_pause.max(PAUSE_MIN)).await;
    }
}

/// Takes the services that a seed knows.
fn learn(shared: &Shared, address: String, (service, table): (ServiceId, Table)) {
    shared.seeds.lock().insert(service, address.clone());
    let now = shared.now();
    let mut producer = shared.producer.lock();
    producer.merge_table(&table, now);
    // A service is in its own table; this one makes sure that it can be tried. Any later record replaces it.
    let record = ServiceRecord {
        service,
        version: 0,
        address,
        state: ServiceState::Up,
        volumes: 0,
        free_bytes: 0,
        queued_bytes: 0,
        credit_bytes: 0,
        bytes_per_second: 0,
        open_files: 0,
        http: String::new(),
    };
    producer.merge_table(&Table(vec![record]), now);
}

/// Greets the service at an address, and returns its identity and table.
async fn ask(shared: &Shared, address: &str) -> io::Result<(ServiceId, Table)> {
    let (mut reader, mut writer) = dial(address, &shared.settings.security).await?;
    // Under an identity of its own: a service ends earlier connections of the same producer.
    let mut writer_id = [0; 16];
    getrandom::fill(&mut writer_id).map_err(|error| io::Error::other(error.to_string()))?;
    let settings = &shared.settings;
    let role = Role::Producer { writer: WriterId(writer_id), session: 1 };
    let token = settings.token.as_deref().map(Secret::new);
    let hello = Hello::new(role, settings.name.clone(), token);
    let mut bytes = Vec::new();
    encode(&mut bytes, &Frame::Hello(hello));
    writer.write_all(&bytes).await?;
    writer.flush().await?;
    let (mut decoder, mut service) = (FrameDecoder::of_begun(), None);
    loop {
        while let Some(received) = decoder.next_message().map_err(io::Error::other)? {
            match (received, service) {
                (Received::Frame(Frame::HelloAck(ack)), _) => service = Some(ack.service),
                (Received::Frame(Frame::Table(table)), Some(service)) => return Ok((service, table)),
                (Received::Frame(Frame::Refusal(refusal)), _) => {
                    return Err(io::Error::other(refusal.reason));
                }
                _ => {}
            }
        }
        if reader.read_buf(decoder.buffer_mut()).await? == 0 {
            return Err(io::Error::other("the peer ended the connection: is it a writer service?"));
        }
    }
}
