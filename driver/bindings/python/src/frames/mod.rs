//! Frame streams: one publisher, many subscribers.
//!
//! A publisher or subscriber owns the endpoint of its card. Waits poll; between two polls they run signal handlers, and poll publishers of
//! the same program that the caller names.

mod error;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpga_frames::{Event, Joining, PublisherEvent, PublisherOptions, ReceivedFrame, SubscriberOptions};
use fpga_rdma::EndpointOptions;
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::card::Card;
use crate::card_state::CardState;
use crate::error::{Class, Failure, with_block};
use crate::foreign::Foreign;
use crate::numbers;
use crate::owned::{Close as _, Owned};
use crate::record::record;
use crate::wait::{self, Presence};

/// Maximum number of polls without the interpreter's lock.
const POLLS_PER_TURN: usize = 64;

fn address(host: &str, port: u16) -> Result<SocketAddr, Failure> {
    let host: IpAddr = host
        .parse()
        .map_err(|_| Failure::value(format!("'{host}' is not an IP address, such as 192.0.2.1")))?;
    Ok(SocketAddr::new(host, port))
}

/// Opens an endpoint, which the stream owns.
fn endpoint(py: Python<'_>, card: &CardState) -> Result<fpga_rdma::Endpoint, Failure> {
    let card = card.get()?;
    wait::detached(py, || fpga_rdma::Endpoint::open_with(&card, &EndpointOptions::default()))
}

/// Sends frames to subscribers.
#[pyclass(frozen, module = "fpga_rdma.frames")]
pub(crate) struct Publisher(Arc<Owned<fpga_frames::Publisher>>);

impl Publisher {
    fn poll_once(&self, py: Python<'_>) -> Result<usize, Failure> {
        self.0.with(py, |publisher| {
            py.detach(|| {
                let work = publisher.poll()?;
                publisher.relax();
                Ok(work)
            })
        })
    }
}

with_block!(Publisher);

#[pymethods]
impl Publisher {
    #[getter]
    fn node(&self, py: Python<'_>) -> Result<u32, Failure> {
        self.0.with(py, |publisher| Ok(publisher.node().get()))
    }

    #[getter]
    fn next_sequence(&self, py: Python<'_>) -> Result<u64, Failure> {
        self.0.with(py, |publisher| Ok(publisher.next_sequence().get()))
    }

    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    #[pyo3(signature = (host = "127.0.0.1", port = 0))]
    fn listen(
        &self,
        py: Python<'_>,
        host: &str,
        #[pyo3(from_py_with = numbers::port)] port: u16,
    ) -> Result<(String, u16), Failure> {
        let address = address(host, port)?;
        let bound = self.0.with(py, |publisher| Ok(publisher.listen(address)?))?;
        Ok((bound.ip().to_string(), bound.port()))
    }

    fn poll(&self, py: Python<'_>) -> Result<usize, Failure> {
        self.poll_once(py)
    }

    #[pyo3(signature = (data, value = None))]
    fn publish<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        value: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>, Failure> {
        let data = Foreign::readable(data)?;
        let value = value.map(Foreign::readable).transpose()?.map_or_else(Vec::new, |value| value.to_vec());
        let published = self.0.with(py, |publisher| {
            py.detach(|| {
                let mut frame = publisher.take()?;
                frame
                    .set_len(data.len())
                    .map_err(|error| Failure::new(Class::RangeError, error.to_string()))?;
                let (memory, length) = (frame.data_mut(), data.len());
                memory
                    .copy_from(0, data.view(), 0, length)
                    .map_err(|error| Failure::new(Class::RangeError, error.to_string()))?;
                frame
                    .set_value(&value)
                    .map_err(|error| Failure::new(Class::RangeError, error.to_string()))?;
                let published = publisher.publish(frame)?;
                let nodes = |set: fpga_frames::SubscriberSet| -> Vec<u32> {
                    publisher
                        .subscribers()
                        .filter(|view| set.contains(view.id))
                        .map(|view| view.node.get())
                        .collect()
                };
                Ok::<_, Failure>((published.sequence.get(), nodes(published.sent), nodes(published.skipped)))
            })
        })?;
        record(py, "frames", "Published", published)
    }

    /// Current subscribers.
    #[getter]
    fn subscribers<'py>(&self, py: Python<'py>) -> Result<Vec<Bound<'py, PyAny>>, Failure> {
        let views: Vec<_> = self.0.with(py, |publisher| Ok(publisher.subscribers().collect()))?;
        let fields = |view: &fpga_frames::SubscriberView| {
            let counts = &view.statistics;
            (
                view.node.get(),
                view.slots,
                view.room,
                counts.sent,
                counts.skipped,
                counts.arrived,
                counts.failed,
            )
        };
        views.iter().map(|view| record(py, "frames", "SubscriberState", fields(view))).collect()
    }

    #[getter]
    fn statistics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Failure> {
        let counts = self.0.with(py, |publisher| Ok(publisher.statistics()))?;
        let fields =
            (counts.published, counts.unsent, counts.sent, counts.skipped, counts.arrived, counts.failed);
        record(py, "frames", "PublisherStatistics", fields)
    }

    /// Oldest event that was not taken: a word, the node if there is one, and a text.
    fn next_event<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>, Failure> {
        let Some(event) = self.0.with(py, |publisher| Ok(publisher.next_event()))? else { return Ok(None) };
        let fields = match event {
            PublisherEvent::Joined { node, first, .. } => {
                ("joined", Some(node.get()), format!("its first frame is {}", first.get()))
            }
            PublisherEvent::Dropped { node, reason, .. } => ("dropped", Some(node.get()), reason.to_string()),
            PublisherEvent::Rejected { peer, reason } => ("rejected", None, format!("{peer}: {reason}")),
            PublisherEvent::UploadFailed { sequence, fault } => {
                ("upload-failed", None, format!("frame {}: {fault}", sequence.get()))
            }
            PublisherEvent::Fault { fault, .. } => ("fault", None, fault.to_string()),
            other => ("other", None, format!("{other:?}")),
        };
        Ok(Some(record(py, "frames", "PublisherEvent", fields)?))
    }

    /// Begins to end the stream: frames in flight still arrive.
    fn end(&self, py: Python<'_>) -> Result<(), Failure> {
        self.0.with(py, |publisher| {
            publisher.begin_close();
            Ok(())
        })
    }

    /// Whether the stream has ended for all subscribers.
    #[getter]
    fn ended(&self, py: Python<'_>) -> Result<bool, Failure> {
        self.0.with(py, |publisher| Ok(publisher.is_closed()))
    }

    fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        self.0.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<Publisher of {}{}>", self.0.card(), if self.0.is_closed() { ": closed" } else { "" })
    }
}

/// Receives the frames of one publisher.
#[pyclass(frozen, module = "fpga_rdma.frames")]
pub(crate) struct Subscriber {
    owned: Arc<Owned<fpga_frames::Subscriber>>,
    card: CardState,
    presence: Presence,
}

/// Converts an event to a record of Python.
fn event<'py>(py: Python<'py>, found: Event) -> Result<Bound<'py, PyAny>, Failure> {
    let bytes = |memory: fpga_driver::SharedSlice<'_>| {
        PyBytes::new_with(py, memory.len(), |into| {
            memory.read(0, into).map_err(|error| Failure::value(error.to_string()).into())
        })
    };
    match found {
        Event::Frame(frame) => {
            let frame: ReceivedFrame = frame;
            let fields = (frame.sequence().get(), bytes(frame.value())?, bytes(frame.data())?);
            record(py, "frames", "Frame", fields)
        }
        Event::Gap { missed, first } => record(py, "frames", "Gap", (first.get(), missed)),
        Event::Ended { next } => record(py, "frames", "Ended", (next.get(),)),
        Event::Fault(error) => record(py, "frames", "Fault", (error.to_string(),)),
        other => record(py, "frames", "Fault", (format!("{other:?}"),)),
    }
}

impl Subscriber {
    /// Polls until there is an event, for some polls.
    fn poll_some(&self, py: Python<'_>) -> Result<Option<Event>, Failure> {
        let event = self.owned.with(py, |subscriber| {
            py.detach(|| {
                for _ in 0..POLLS_PER_TURN {
                    if let Some(event) = subscriber.poll()? {
                        return Ok(Some(event));
                    }
                    subscriber.back_off();
                }
                Ok::<_, Failure>(None)
            })
        })?;
        if event.is_none() {
            // Polls read host memory only.
            self.presence.check(py, &self.card.get()?)?;
        }
        Ok(event)
    }
}

with_block!(Subscriber);

#[pymethods]
impl Subscriber {
    #[getter]
    fn node(&self, py: Python<'_>) -> Result<u32, Failure> {
        self.owned.with(py, |subscriber| Ok(subscriber.endpoint().node().get()))
    }

    #[getter]
    fn closed(&self) -> bool {
        self.owned.is_closed()
    }

    #[getter]
    fn statistics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Failure> {
        let counts = self.owned.with(py, |subscriber| Ok(subscriber.counts()))?;
        record(
            py,
            "frames",
            "SubscriberStatistics",
            (counts.frames, counts.bytes, counts.gaps, counts.missed),
        )
    }

    fn poll<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>, Failure> {
        self.poll_some(py)?.map(|found| event(py, found)).transpose()
    }

    #[pyo3(signature = (timeout = Some(10.0), *, poll = Vec::new()))]
    fn wait<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
        poll: Vec<Py<Publisher>>,
    ) -> Result<Bound<'py, PyAny>, Failure> {
        let (limit, began) = (wait::duration(timeout)?, Instant::now());
        loop {
            if let Some(found) = self.poll_some(py)? {
                return event(py, found);
            }
            for publisher in &poll {
                publisher.get().poll_once(py)?;
            }
            self.owned.check_open()?;
            py.check_signals()?;
            if began.elapsed() >= limit {
                return Err(Failure::new(Class::TimedOutError, format!("no frame has arrived after {limit:?}"))
                    .on_card(self.owned.card())
                    .advice("wait longer (timeout=...); if the publisher is in this program, poll it: wait(poll=[publisher])"));
            }
        }
    }

    fn __aiter__<'py>(this: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>, Failure> {
        Ok(this.py().import("fpga_rdma._aio")?.getattr("Frames")?.call1((this,))?)
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Failure> {
        loop {
            match self.poll_some(py)? {
                Some(Event::Ended { .. }) => return Err(PyStopIteration::new_err(()).into()),
                Some(found) => return event(py, found),
                None => {
                    self.owned.check_open()?;
                    py.check_signals()?;
                }
            }
        }
    }

    /// Leaves the stream, and tells the publisher.
    #[pyo3(signature = (timeout = Some(1.0)))]
    fn leave(&self, py: Python<'_>, timeout: Option<f64>) -> Result<(), Failure> {
        // A publisher that does not answer within this time finds out by its sends.
        let limit = wait::duration(timeout)?.min(Duration::from_secs(60));
        if let Some(subscriber) = self.owned.take(py)? {
            wait::detached(py, || subscriber.leave(limit).map_err(Failure::from))?;
        }
        Ok(())
    }

    fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        self.owned.close(py)
    }

    fn __repr__(&self) -> String {
        format!(
            "<Subscriber of {}{}>",
            self.owned.card(),
            if self.owned.is_closed() { ": closed" } else { "" }
        )
    }
}

#[pymethods]
impl Card {
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    #[pyo3(signature = (max_data_length, *, max_value_length = 8, slots = None, subscribers = None, heartbeat = None, max_silence = None))]
    fn publisher(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers::max_data_length)] max_data_length: u64,
        #[pyo3(from_py_with = numbers::max_value_length)] max_value_length: u32,
        #[pyo3(from_py_with = numbers::slots)] slots: Option<u32>,
        #[pyo3(from_py_with = numbers::subscribers)] subscribers: Option<u32>,
        heartbeat: Option<f64>,
        max_silence: Option<f64>,
    ) -> Result<Publisher, Failure> {
        let mut options = PublisherOptions::default();
        (options.max_data_length, options.max_value_length) = (max_data_length, max_value_length);
        options.slots = slots.unwrap_or(options.slots);
        options.subscribers = subscribers.unwrap_or(options.subscribers);
        if let Some(span) = heartbeat {
            options.heartbeat = wait::duration(Some(span))?;
        }
        if let Some(span) = max_silence {
            options.max_silence = wait::duration(Some(span))?;
        }
        let endpoint = endpoint(py, self.state())?;
        let publisher = wait::detached(py, || fpga_frames::Publisher::new(endpoint, options))?;
        Ok(Publisher(self.state().own("the publisher", publisher)?))
    }

    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    #[pyo3(signature = (host, port, *, slots = None, timeout = Some(10.0), poll = Vec::new(), max_silence = None))]
    fn subscribe(
        &self,
        py: Python<'_>,
        host: &str,
        #[pyo3(from_py_with = numbers::port)] port: u16,
        #[pyo3(from_py_with = numbers::slots)] slots: Option<u32>,
        timeout: Option<f64>,
        poll: Vec<Py<Publisher>>,
        max_silence: Option<f64>,
    ) -> Result<Subscriber, Failure> {
        let (address, limit, began) = (address(host, port)?, wait::duration(timeout)?, Instant::now());
        let mut options = SubscriberOptions::default();
        options.slots = slots.unwrap_or(options.slots);
        if let Some(span) = max_silence {
            options.max_silence = wait::duration(Some(span))?;
        }
        let endpoint = endpoint(py, self.state())?;
        let mut joining: Joining =
            wait::detached(py, || fpga_frames::Subscriber::begin_join(endpoint, address, options))?;
        loop {
            let joined = py.detach(|| {
                let joined = joining.poll();
                joining.relax();
                joined
            })?;
            if let Some(subscriber) = joined {
                let owned = self.state().own("the subscriber", subscriber)?;
                return Ok(Subscriber { owned, card: self.state().clone(), presence: Presence::new() });
            }
            for publisher in &poll {
                publisher.get().poll_once(py)?;
            }
            py.check_signals()?;
            if began.elapsed() >= limit {
                let message = format!("the publisher at {address} has not accepted within {limit:?}");
                return Err(Failure::new(Class::TimedOutError, message).on_card(self.state().name()).advice(
                    "check that it listens there and is polled; if it is in this program, poll it: subscribe(..., poll=[publisher])",
                ));
            }
        }
    }
}
