//! The broker of Kafka that `make test-kafka` starts, and a proxy before it that loses answers.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rskafka::BackoffConfig;
use rskafka::client::ClientBuilder;
use rskafka::client::partition::{OffsetAt, UnknownTopicHandling};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Message of a topic.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub offset: i64,
    pub key: String,
    /// The event; none for a tombstone.
    pub event: Option<Value>,
    pub headers: Vec<(String, String)>,
    pub time_ms: i64,
}

impl Message {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value)
    }
}

/// The broker.
pub(crate) struct Broker {
    script: PathBuf,
    directory: PathBuf,
    plain: u16,
    secure: u16,
    faulty: u16,
    proxy: u16,
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

impl Broker {
    /// Returns the broker that the environment names.
    pub(crate) fn of_environment() -> Broker {
        let variable = |name: &str| -> PathBuf {
            std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set: make test-kafka")).into()
        };
        let (script, directory) = (variable("EXACAT_KAFKA_SCRIPT"), variable("EXACAT_KAFKA_DIRECTORY"));
        let ports = std::fs::read_to_string(directory.join("ports")).unwrap();
        let ports: Vec<u16> = ports.split_whitespace().map(|port| port.parse().unwrap()).collect();
        let [plain, secure, faulty, proxy, _] = ports[..] else { panic!("{ports:?}") };
        Broker { script, directory, plain, secure, faulty, proxy }
    }

    fn run(&self, action: &str, arguments: &[&str]) {
        let mut command = Command::new(&self.script);
        command.arg(action).arg(&self.directory).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{action} {arguments:?}: {output:?}");
    }

    /// Ends the broker without a warning.
    pub(crate) fn kill(&self) {
        self.run("kill", &[]);
    }

    /// Starts it again.
    pub(crate) fn up(&self) {
        self.run("up", &[]);
    }

    /// Makes a topic. Returns its name, which has that of the test run.
    pub(crate) fn topic(&self, name: &str, partitions: u16, settings: &[&str]) -> String {
        let name = self.name(name);
        let partitions = partitions.to_string();
        let arguments: Vec<&str> =
            [name.as_str(), &partitions].into_iter().chain(settings.iter().copied()).collect();
        self.run("topic", &arguments);
        name
    }

    /// Returns the name of a topic of this run.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{name}.{}", std::process::id())
    }

    /// Returns the address of a topic.
    pub(crate) fn plain(&self, topic: &str) -> String {
        format!("kafka://127.0.0.1:{}/{topic}", self.plain)
    }

    /// Returns the address of a topic over TLS, for the user of [`Broker::login`].
    pub(crate) fn secure(&self, topic: &str) -> String {
        format!("kafkas://localhost:{}/{topic}", self.secure)
    }

    /// Returns the address of a topic through the proxy.
    pub(crate) fn faulty(&self, topic: &str) -> String {
        format!("kafka://127.0.0.1:{}/{topic}", self.proxy)
    }

    /// Returns the line of a login file.
    pub(crate) fn login(&self, mechanism: &str) -> String {
        let password = std::fs::read_to_string(self.directory.join("secure/password")).unwrap();
        format!("{mechanism}:exacat:{password}\n")
    }

    /// Returns the file with the certificate of the broker's authority.
    pub(crate) fn authority(&self) -> PathBuf {
        self.directory.join("secure/authority.pem")
    }

    /// Reads a topic from its first to its last message.
    pub(crate) async fn read(&self, topic: &str) -> Vec<Message> {
        let backoff = BackoffConfig { max_backoff: Duration::from_millis(500), ..BackoffConfig::default() };
        let brokers = vec![format!("127.0.0.1:{}", self.plain)];
        let client = ClientBuilder::new(brokers).backoff_config(backoff).build().await.unwrap();
        let partition = client.partition_client(topic, 0, UnknownTopicHandling::Retry).await.unwrap();
        let mut offset = partition.get_offset(OffsetAt::Earliest).await.unwrap();
        let end = partition.get_offset(OffsetAt::Latest).await.unwrap();
        let mut messages = Vec::new();
        while offset < end {
            let (records, _) = partition.fetch_records(offset, 1..8 << 20, 1000).await.unwrap();
            // Where everything was compacted away, nothing comes.
            offset = records.last().map_or(offset, |last| last.offset) + 1;
            messages.extend(records.into_iter().map(|one| Message {
                offset: one.offset,
                key: text(one.record.key.unwrap()),
                event: one.record.value.map(|value| serde_json::from_slice(&value).unwrap()),
                headers: one.record.headers.into_iter().map(|(name, value)| (name, text(value))).collect(),
                time_ms: one.record.timestamp.timestamp_millis(),
            }));
        }
        messages
    }
}

#[derive(Default)]
struct Faults {
    is_on: AtomicBool,
    produced: AtomicU64,
    lost: AtomicU64,
    torn: AtomicU64,
}

/// A proxy before the broker, at the port to which the broker sends clients of a listener.
pub(crate) struct Proxy {
    faults: Arc<Faults>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    pub(crate) async fn start(broker: &Broker) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", broker.proxy)).await.unwrap();
        let faults = Arc::new(Faults::default());
        let (of_task, port) = (Arc::clone(&faults), broker.faulty);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let faults = Arc::clone(&of_task);
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                        // It ends with the connection.
                        let _ended = serve(client, server, &faults).await;
                    }
                });
            }
        });
        Proxy { faults, task }
    }

    /// Begins or ends the faults: some requests are lost in their middle, the answers of others are lost.
    pub(crate) fn set_faults(&self, on: bool) {
        self.faults.is_on.store(on, Ordering::SeqCst);
    }

    /// Returns how many requests were torn, and how many answers were lost.
    pub(crate) fn faults(&self) -> (u64, u64) {
        (self.faults.torn.load(Ordering::SeqCst), self.faults.lost.load(Ordering::SeqCst))
    }
}

async fn frame(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.resize(4 + usize::try_from(length).unwrap(), 0);
    stream.read_exact(&mut frame[4..]).await?;
    Ok(frame)
}

async fn serve(mut client: TcpStream, mut server: TcpStream, faults: &Faults) -> std::io::Result<()> {
    loop {
        let request = frame(&mut client).await?;
        // The key of requests that bring records is 0.
        let number = match request[4..6] == [0, 0] && faults.is_on.load(Ordering::SeqCst) {
            true => faults.produced.fetch_add(1, Ordering::SeqCst),
            false => 0,
        };
        if number % 5 == 3 {
            server.write_all(&request[..request.len() / 2]).await?;
            faults.torn.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        server.write_all(&request).await?;
        let answer = frame(&mut server).await?;
        if number % 4 == 1 {
            faults.lost.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        client.write_all(&answer).await?;
    }
}
