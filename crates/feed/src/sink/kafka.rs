//! A topic of Kafka: takes events in order, and has them when all in-sync replicas of its one partition do.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use exacat_model::Guid;
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::{ClientBuilder, SaslConfig};
use rskafka::{BackoffConfig, BackoffError};
use tokio::runtime::Runtime;
use tokio::time::Instant;

use super::cloud::Attributes;
use super::kafka_address::{KafkaAddress, authority};
use super::kafka_login::login;
use super::kafka_records::{RecordSet, requests};
use super::reach::{TlsSource, addresses, permitted, refused};
use super::trouble::Trouble;
use crate::batch::Batch;
use crate::cursor::Cursor;
use crate::limits::{ANSWER_TIME, KAFKA_ANSWER_BYTES_MAX, KAFKA_BYTES, KAFKA_IDLE_MAX};

/// Name by which brokers know the client in their logs and quotas.
const CLIENT_ID: &str = "exacat";

/// Runtime of a connection. The client library finishes a write that its caller gave up, in a task that waits
/// as long as the broker does not read. All such tasks end with this value.
struct OwnRuntime(Option<Runtime>);

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl OwnRuntime {
    fn new() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(1)
            .thread_name("feed-kafka")
            // The library logs each step and each failure. The feed logs and shows the reason of a wait.
            .on_thread_start(|| {
                std::mem::forget(tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::new()));
            })
            .enable_io()
            .enable_time()
            .build()?;
        Ok(OwnRuntime(Some(runtime)))
    }

    /// Runs work of the client library to its end.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Trouble> {
        let Some(runtime) = &self.0 else { return Err(Trouble::later("no connection")) };
        let done = runtime.spawn(work).await;
        done.map_err(|error| Trouble::later(format!("internal error: the Kafka client ended early: {error}")))
    }
}

/// A connection to the leader of the topic's partition.
struct Connection {
    partition: Arc<PartitionClient>,
    runtime: OwnRuntime,
    answered: Instant,
}

/// Reason why a topic cannot be written to.
enum NotOpened {
    Client(Error),
    Missing,
    Partitions(usize),
}

impl From<Error> for NotOpened {
    fn from(error: Error) -> Self {
        NotOpened::Client(error)
    }
}

/// A topic.
pub(crate) struct KafkaSink {
    address: KafkaAddress,
    allow_private: bool,
    login: Option<SaslConfig>,
    attributes: Attributes,
    tls: TlsSource,
    connection: Option<Connection>,
}

/// True if a connection was answered so long ago that it may have ended.
fn is_idle(answered: Instant) -> bool {
    answered.elapsed() >= KAFKA_IDLE_MAX
}

/// Settings by which the library tries once: the feed itself tries again.
fn once() -> BackoffConfig {
    let (init_backoff, max_backoff) = (Duration::from_millis(100), Duration::from_secs(1));
    BackoffConfig { init_backoff, max_backoff, base: 2.0, deadline: Some(Duration::ZERO) }
}

async fn open(builder: ClientBuilder, topic: String) -> Result<PartitionClient, NotOpened> {
    let client = builder.build().await?;
    // Before the topic is named in any request: a broker may create one that is named.
    let topics = client.list_topics().await?;
    let found = topics.iter().find(|one| one.name == topic).ok_or(NotOpened::Missing)?;
    if found.partitions.len() != 1 || !found.partitions.contains(&0) {
        return Err(NotOpened::Partitions(found.partitions.len()));
    }
    Ok(client.partition_client(topic, 0, UnknownTopicHandling::Error).await?)
}

impl KafkaSink {
    /// Makes the sink of a feed. It connects with the first batch.
    pub(crate) fn open(
        address: KafkaAddress,
        cursor: &Cursor,
        catalogue: Guid,
        tls: TlsSource,
    ) -> Result<Self, Trouble> {
        let secret = cursor.spec.secret.as_deref();
        let login = secret.map(|path| login(Path::new(path), address.is_tls)).transpose()?;
        let attributes = Attributes::new(catalogue, cursor.timeline);
        let allow_private = cursor.spec.allow_private;
        Ok(KafkaSink { address, allow_private, login, attributes, tls, connection: None })
    }

    /// Sends events, in as many requests as needed, each after the answer to the one before.
    pub(crate) async fn put(&mut self, batch: &Batch) -> Result<(), Trouble> {
        // A broker or a firewall may have ended it.
        self.connection = self.connection.take().filter(|one| !is_idle(one.answered));
        // Between requests, nothing of the sink may be borrowed.
        let attributes = std::mem::take(&mut self.attributes);
        let mut outcome = Ok(());
        for set in requests(batch, &attributes) {
            outcome = self.produce(set).await;
            if outcome.is_err() {
                break;
            }
        }
        self.attributes = attributes;
        outcome
    }

    async fn produce(&mut self, set: RecordSet) -> Result<(), Trouble> {
        // A connection with an open request ends with the request, so that no late answer is taken for
        // another one's.
        match tokio::time::timeout(ANSWER_TIME, self.exchange(set)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let seconds = ANSWER_TIME.as_secs();
                Err(Trouble::later(format!("{} does not answer within {seconds} s", self.address)))
            }
        }
    }

    /// Sends one request and waits for its answer. The connection is kept if the answer is a good one.
    async fn exchange(&mut self, set: RecordSet) -> Result<(), Trouble> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let (partition, RecordSet { records, bytes }) = (Arc::clone(&connection.partition), set);
        let work = async move { partition.produce(records, Compression::Zstd).await };
        let answer = connection.runtime.run(work).await?;
        answer.map_err(|error| self.trouble(&error, bytes))?;
        self.connection = Some(Connection { answered: Instant::now(), ..connection });
        Ok(())
    }

    async fn connect(&self) -> Result<Connection, Trouble> {
        let brokers = self.bootstrap().await?;
        let broken = |error: std::io::Error| Trouble::later(format!("{}: {error}", self.address));
        let runtime = OwnRuntime::new().map_err(broken)?;
        let mut builder = ClientBuilder::new(brokers)
            .client_id(CLIENT_ID)
            .max_message_size(KAFKA_ANSWER_BYTES_MAX)
            .backoff_config(once());
        if self.address.is_tls {
            builder = builder.tls_config(Arc::clone((self.tls)()?.config()));
        }
        if let Some(login) = &self.login {
            builder = builder.sasl_config(login.clone());
        }
        let opened = runtime.run(open(builder, self.address.topic.clone())).await?;
        let partition = Arc::new(opened.map_err(|error| self.not_opened(&error))?);
        Ok(Connection { partition, runtime, answered: Instant::now() })
    }

    /// Returns the bootstrap hosts that the feed may connect to.
    async fn bootstrap(&self) -> Result<Vec<String>, Trouble> {
        let (mut brokers, mut trouble) = (Vec::new(), Trouble::later("no host"));
        for (host, port) in &self.address.hosts {
            let found = match addresses(host, *port).await {
                Ok(found) => found,
                Err(error) => {
                    trouble = Trouble::later(format!("{}: {host}: {error}", self.address));
                    continue;
                }
            };
            let permitted = permitted(&found, self.allow_private);
            if self.address.is_tls {
                // The certificate is that of the name, which the library looks up again.
                if permitted.len() == found.len() {
                    brokers.push(authority(host, *port));
                }
            } else {
                brokers.extend(permitted.iter().map(ToString::to_string));
            }
            if permitted.len() < found.len() {
                trouble = refused(&authority(host, *port));
            }
        }
        if brokers.is_empty() { Err(trouble) } else { Ok(brokers) }
    }

    fn not_opened(&self, error: &NotOpened) -> Trouble {
        let topic = &self.address.topic;
        match error {
            NotOpened::Client(error) => self.trouble(error, 0),
            NotOpened::Missing => self.missing(),
            NotOpened::Partitions(count) => Trouble::later(format!(
                "topic {topic} has {count} partitions, and events are in order within one only: make a topic with \
                 kafka-topics.sh --create --topic NAME --partitions 1"
            )),
        }
    }

    fn missing(&self) -> Trouble {
        let (address, topic) = (&self.address, &self.address.topic);
        Trouble::later(format!(
            "{address}: there is no topic {topic}, or the feed's user may not see it: make it with kafka-topics.sh \
             --create --topic {topic} --partitions 1"
        ))
    }

    /// Returns the trouble of a failed request with so many bytes of records.
    fn trouble(&self, error: &Error, bytes: usize) -> Trouble {
        let (address, topic) = (&self.address, &self.address.topic);
        match error {
            Error::RetryFailed(BackoffError::DeadlineExceded { source, .. }) => {
                match source.downcast_ref::<Error>() {
                    Some(error) => self.trouble(error, bytes),
                    None => Trouble::later(format!("{address}: {source}")),
                }
            }
            Error::ServerError { protocol_error, .. } => match protocol_error {
                ProtocolError::UnknownTopicOrPartition => self.missing(),
                ProtocolError::MessageTooLarge | ProtocolError::RecordListTooLarge => {
                    Trouble::later(format!(
                        "topic {topic} refuses {bytes} bytes of events: set its max.message.bytes to {} or more",
                        bytes.max(KAFKA_BYTES).next_multiple_of(1 << 20)
                    ))
                }
                ProtocolError::InvalidTimestamp => Trouble::later(format!(
                    "topic {topic} refuses the time of an event: compare the clocks of server and brokers, and see \
                     message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic"
                )),
                ProtocolError::TopicAuthorizationFailed | ProtocolError::ClusterAuthorizationFailed => {
                    Trouble::later(format!(
                        "{address}: the feed's user may not write to topic {topic}: grant it DESCRIBE and WRITE"
                    ))
                }
                other => Trouble::later(format!("{address}: the broker answers {other}")),
            },
            other => {
                // The library wraps its errors once for each of its layers.
                let text = other.to_string();
                let innermost = text.rsplit("Source: ").next().unwrap_or_default();
                Trouble::later(format!("{address}: {innermost}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use exacat_model::{
        AfterRestore, DirId, EntryId, ErrorKind, FeedName, FeedSpec, FeedStart, FeedState, Revision, TimeMs,
        TimelineId,
    };

    use super::*;
    use crate::batch::{Head, Op};

    fn sink(address: &str, allow_private: bool) -> KafkaSink {
        let spec = FeedSpec {
            sink: address.to_owned(),
            under: None,
            kinds: Vec::new(),
            start: FeedStart::Now,
            days: 1,
            bytes: 1,
            room: 1,
            copy_when_lost: false,
            after_restore: AfterRestore::Tell,
            allow_private,
            secret: None,
        };
        let cursor = Cursor {
            name: FeedName::parse("kafka").unwrap(),
            id: [7; 16],
            spec,
            owner: String::new(),
            created: TimeMs(0),
            generation: 1,
            revision: Revision(0),
            timeline: TimelineId([1; 16]),
            window: Revision(0),
            must_copy: false,
            undone: Vec::new(),
            state: FeedState::Running,
            reason: String::new(),
        };
        let none = || exacat_model::Error::new(ErrorKind::Unavailable, "no TLS in this test");
        let tls: TlsSource = Arc::new(move || Err(none()));
        KafkaSink::open(KafkaAddress::parse(address).unwrap(), &cursor, Guid([7; 16]), tls)
            .unwrap_or_else(|_| panic!())
    }

    fn batch() -> Batch {
        let (mut batch, entry) = (Batch::default(), Some(EntryId::Directory(DirId(1))));
        batch.bytes.extend_from_slice(b"{}\n");
        let (op, revision, time) = (Op::Created, Revision(1), TimeMs(1));
        batch.heads.push(Head { end: 3, op, revision, index: 0, time, version: 0, entry });
        batch
    }

    fn why(outcome: Result<(), Trouble>) -> String {
        match outcome {
            Err(Trouble::Later { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    }

    /// Property: a broker that takes the connection and never answers is given up after [`ANSWER_TIME`], and
    /// the next batch connects anew.
    #[tokio::test(start_paused = true)]
    async fn silent_broker_is_given_up_in_bounded_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("kafka://{}/t", listener.local_addr().unwrap());
        let mut sink = sink(&address, true);
        let begin = Instant::now();
        assert!(why(sink.put(&batch()).await).contains("does not answer within 30 s"));
        assert!(begin.elapsed() >= ANSWER_TIME && begin.elapsed() < 2 * ANSWER_TIME);
        assert!(sink.connection.is_none());
    }

    /// Property: garbage, a length beyond every limit, and an end of the connection are reasons to try later.
    #[tokio::test]
    async fn answers_that_are_none_are_reasons_to_try_later() {
        use std::io::Write as _;
        for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0xff; 64], &[0x7f, 0xff, 0xff, 0xff], &[]]
        {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let broker = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let _written = stream.write_all(answer);
            });
            let mut sink = sink(&format!("kafka://{address}/t"), true);
            assert!(why(sink.put(&batch()).await).starts_with("kafka://127.0.0.1"));
            broker.join().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connection_is_idle_from_its_limit_on() {
        let answered = Instant::now();
        tokio::time::advance(KAFKA_IDLE_MAX - Duration::from_millis(1)).await;
        assert!(!is_idle(answered));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(is_idle(answered));
    }

    /// Property: hosts of the own network are refused with the remedy, over TLS too.
    #[tokio::test]
    async fn private_hosts_are_refused() {
        for address in ["kafka://127.0.0.1:9/t", "kafka://[::1]:9,10.0.0.1/t", "kafkas://169.254.169.254/t"] {
            let outcome = sink(address, false).put(&batch()).await;
            assert!(why(outcome).contains("--allow-private"), "{address}");
        }
    }

    /// Property: an error of the broker that an operator can act on says how.
    #[test]
    fn errors_of_brokers_name_the_remedy() {
        let sink = sink("kafka://h/changes", true);
        let of = |protocol_error, bytes| {
            let request = rskafka::client::error::RequestContext::Partition("changes".to_owned(), 0);
            let error = Error::ServerError {
                protocol_error,
                error_message: None,
                request,
                response: None,
                is_virtual: false,
            };
            why(Err(sink.trouble(&error, bytes)))
        };
        let large = of(ProtocolError::MessageTooLarge, 100);
        assert!(large.contains("max.message.bytes to 1048576"), "{large}");
        let large = of(ProtocolError::MessageTooLarge, (2 << 20) + 1);
        assert!(large.contains("max.message.bytes to 3145728"), "{large}");
        assert!(
            of(ProtocolError::UnknownTopicOrPartition, 1).contains("--create --topic changes --partitions 1")
        );
        assert!(of(ProtocolError::InvalidTimestamp, 1).contains("message.timestamp.after.max.ms"));
        assert!(of(ProtocolError::TopicAuthorizationFailed, 1).contains("DESCRIBE and WRITE"));
        assert!(why(Err(sink.not_opened(&NotOpened::Partitions(3)))).contains("3 partitions"));
    }
}
