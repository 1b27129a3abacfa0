//! AMQP 1.0 load for every broker that supports it, with one client on the transport's codec:
//! transfers with acknowledgements, deliveries under lock, and completions in settled ranges
//! without an answer. Credit is returned in steps of a quarter of the window.

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use peeklock_amqp_testing::client::{Frames, Outgoing, Parts, Session, link};
use peeklock_amqp::frame::Protocol;
use peeklock_amqp::performative::{
    Attach, Begin, Disposition, Performative, ReceiverSettleMode, Role,
};
use peeklock_amqp::sasl::{Init, mechanism};
use peeklock_amqp::state::{DeliveryState, Outcome};
use peeklock_words::amqp::{Reader, Scalar};
use peeklock_words::message::{Content, Message};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::load::Tally;

const HANDLE: u32 = 0;
const READ_BYTES: usize = 256 << 10;
/// Descriptor of the SASL outcome.
const SASL_OUTCOME: u8 = 0x44;
/// Number of credit steps per window.
const STEPS: u32 = 4;

/// Address and credentials of a broker's queue.
#[derive(Clone, Copy)]
pub struct Place {
    pub port: u16,
    pub address: &'static str,
    /// Credentials in the format of PLAIN; anonymous if absent.
    pub password: Option<&'static [u8]>,
}

struct Connection {
    socket: TcpStream,
    frames: Frames,
    session: Session,
}

impl Connection {
    async fn open(place: Place) -> Result<Self> {
        let socket = TcpStream::connect(("127.0.0.1", place.port)).await?;
        socket.set_nodelay(true)?;
        let mut this = Self { socket, frames: Frames::default(), session: Session::new(0) };
        this.frames.say_header(Protocol::Sasl);
        let init = match place.password {
            Some(password) => Init {
                mechanism: mechanism::PLAIN.into(),
                initial_response: Some(Bytes::from_static(password)),
                ..Init::default()
            },
            None => Init { mechanism: mechanism::ANONYMOUS.into(), ..Init::default() },
        };
        this.frames.say_sasl(&init);
        this.write().await?;
        this.header().await?;
        // The offered mechanisms, and the outcome.
        this.body().await?;
        let outcome = this.body().await?;
        let mut outcome = Reader::new(&outcome);
        ensure!(outcome.section()? == SASL_OUTCOME, "no outcome of SASL came");
        ensure!(outcome.list()?.1.scalar()? == Scalar::U8(0), "not let in");
        this.frames.say_header(Protocol::Amqp);
        this.frames.say(0, &Session::open("compare"), &[]);
        this.frames.say(0, &Begin { incoming_window: 100_000, ..Session::begin() }, &[]);
        this.write().await?;
        this.header().await?;
        let mut opened = None;
        loop {
            match this.hear().await?.0 {
                Performative::Open(open) => opened = Some(open),
                Performative::Begin(begin) => {
                    let opened = opened.context("begun before it was open")?;
                    this.session.begun(&opened, &begin);
                    return Ok(this);
                }
                other => bail!("answered with {other:?}"),
            }
        }
    }

    /// Attaches the only link.
    async fn attach(&mut self, attach: &Attach) -> Result<()> {
        self.frames.say(0, attach, &[]);
        self.write().await?;
        loop {
            match self.hear().await?.0 {
                Performative::Attach(_) => return Ok(()),
                Performative::Flow(_) => {}
                other => bail!("answered with {other:?}"),
            }
        }
    }

    async fn header(&mut self) -> Result<()> {
        while self.frames.hear_header().is_none() {
            self.read().await?;
        }
        Ok(())
    }

    async fn body(&mut self) -> Result<Bytes> {
        loop {
            if let Some(frame) = self.frames.hear_frame()? {
                return Ok(frame.body);
            }
            self.read().await?;
        }
    }

    async fn hear(&mut self) -> Result<(Performative, Bytes)> {
        loop {
            if let Some(heard) = self.heard()? {
                return Ok(heard);
            }
            self.read().await?;
        }
    }

    /// Returns the next performative that has already arrived.
    fn heard(&mut self) -> Result<Option<(Performative, Bytes)>> {
        let Some((_, performative, payload)) = self.frames.hear()? else { return Ok(None) };
        self.session.heard(&performative);
        Ok(Some((performative, payload)))
    }

    async fn read(&mut self) -> Result<()> {
        self.frames.input.reserve(READ_BYTES);
        let read = self.socket.read_buf(&mut self.frames.input).await?;
        ensure!(read > 0, "the broker has closed the connection");
        Ok(())
    }

    async fn write(&mut self) -> Result<()> {
        let bytes = self.frames.output.split();
        Ok(self.socket.write_all(&bytes).await?)
    }
}

pub async fn send(place: Place, tally: &Tally) -> Result<()> {
    let mut at = Connection::open(place).await?;
    let message = Message::new(tally.body().to_vec()).encode();
    let message = message.as_bytes();
    at.attach(&link::sender("sender", HANDLE, place.address)).await?;
    let (mut sent, mut up_to) = (0_u32, 0_u32);
    // Sends in flight, in order; `None` if answered before an older one.
    let mut under_way: VecDeque<(u32, Option<Instant>)> = VecDeque::new();
    loop {
        let mut is_done = false;
        while under_way.len() < tally.window
            && up_to.wrapping_sub(sent).cast_signed() > 0
            && at.session.has_room(message.len())
        {
            is_done = tally.take(1) == 0;
            if is_done {
                break;
            }
            let outgoing =
                Outgoing { handle: HANDLE, format: 0, settled: false, state: None, message };
            let id = at.session.transfer(&mut at.frames, &outgoing);
            sent = sent.wrapping_add(1);
            under_way.push_back((id, Some(Instant::now())));
        }
        at.write().await?;
        if is_done && under_way.is_empty() {
            return Ok(());
        }
        let mut next = Some(at.hear().await?);
        while let Some((performative, _)) = next {
            match performative {
                Performative::Flow(flow) if flow.handle == Some(HANDLE) => {
                    // A peer that has not seen a delivery count omits it.
                    let heard = flow.delivery_count.unwrap_or(0);
                    up_to = heard.wrapping_add(flow.link_credit.unwrap_or(0));
                }
                Performative::Flow(_) => {}
                Performative::Disposition(of) => {
                    let accepted = DeliveryState::Outcome(Outcome::Accepted);
                    ensure!(of.state == Some(accepted), "answered with {:?}", of.state);
                    answered(&mut under_way, of.first, of.last.unwrap_or(of.first), tally).await;
                }
                other => bail!("answered with {other:?}"),
            }
            next = at.heard()?;
        }
    }
}

async fn answered(
    under_way: &mut VecDeque<(u32, Option<Instant>)>,
    first: u32,
    last: u32,
    tally: &Tally,
) {
    let Some((oldest, _)) = under_way.front().copied() else { return };
    let place = |id: u32| id.wrapping_sub(oldest) as usize;
    for index in place(first)..=place(last) {
        if let Some(began) = under_way.get_mut(index).and_then(|(_, began)| began.take()) {
            tally.sent(1, began).await;
        }
    }
    while let Some((_, None)) = under_way.front() {
        under_way.pop_front();
    }
}

pub async fn receive(place: Place, tally: &Tally) -> Result<()> {
    let mut at = Connection::open(place).await?;
    let first = Some(ReceiverSettleMode::First);
    let attach = link::receiver("receiver", HANDLE, place.address);
    at.attach(&Attach { rcv_settle_mode: first, ..attach }).await?;
    let window = u32::try_from(tally.window)?;
    let (mut received, mut granted) = (0_u32, 0_u32);
    let mut parts = Parts::default();
    loop {
        let up_to = received.wrapping_add(window);
        if up_to.wrapping_sub(granted) >= (window / STEPS).max(1) {
            granted = up_to;
            let flow = at.session.credit(HANDLE, received, window);
            at.frames.say(0, &flow, &[]);
        }
        at.write().await?;
        let mut next = tokio::select! {
            biased;
            () = tally.all_received() => break,
            heard = at.hear() => Some(heard?),
        };
        let mut range: Option<(u32, u32)> = None;
        let mut count = 0;
        while let Some((performative, payload)) = next {
            match performative {
                Performative::Transfer(transfer) => {
                    if let Some((first, message)) = parts.push(transfer, payload) {
                        let id = first.delivery_id.context("a delivery without an id")?;
                        tally.received([&body(message)?[..]])?;
                        received = received.wrapping_add(1);
                        count += 1;
                        range = match range {
                            Some((first, last)) if last.wrapping_add(1) == id => Some((first, id)),
                            None => Some((id, id)),
                            Some((first, last)) => {
                                complete(&mut at, first, last);
                                Some((id, id))
                            }
                        };
                    }
                }
                Performative::Flow(_) | Performative::Disposition(_) => {}
                other => bail!("unexpected answer {other:?}"),
            }
            next = at.heard()?;
        }
        if let Some((first, last)) = range {
            complete(&mut at, first, last);
        }
        // Count the completions after they are written.
        at.write().await?;
        tally.completed(count);
    }
    let flow = at.session.credit(HANDLE, received, 0);
    at.frames.say(0, &flow, &[]);
    at.write().await?;
    // A RabbitMQ channel may delay acknowledgements while its queue is slow, and drops them when it
    // is closed.
    tokio::spawn(async move {
        tokio::time::sleep(crate::rabbitmq::SETTLE_TIME).await;
        drop(at);
    });
    Ok(())
}

/// Completes a range as settled, so that no answer is sent.
fn complete(at: &mut Connection, first: u32, last: u32) {
    let disposition = Disposition {
        role: Role::Receiver,
        first,
        last: Some(last),
        settled: true,
        state: Some(DeliveryState::accepted()),
        batchable: false,
    };
    at.frames.say(0, &disposition, &[]);
}

fn body(message: Bytes) -> Result<Bytes> {
    let content = Content::parse(message)?;
    let mut reader = Reader::new(content.sections().body);
    reader.section()?;
    let Scalar::Binary(body) = reader.scalar()? else { bail!("the body is no data") };
    Ok(content.as_bytes().slice_ref(body))
}
