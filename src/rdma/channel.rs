//! [`Channel`]: a queue pair of a server, on which operations are submitted and polled.

mod operation;
mod slots;

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use cuobj_sys as sys;

use super::error::Errno;
use super::{CuServer, DescriptorError, Error, Local, Result, WcStatus, quarantine, shim};
pub(crate) use operation::Refusal;
pub use operation::{Completion, Direction, Failed, Operation};
use slots::Slots;

/// Most operations in flight on a channel.
///
/// One poll of the library reports at most 16 completions, and after a failure the operations that
/// it does not report are lost.
pub const DEPTH: usize = sys::VGW_CUOBJ_MAX_EVENTS;

/// Most bytes of one operation ("cuObjServer API Specification", handleGetObject).
pub const MAX_OPERATION_BYTES: usize = 1 << 30;

/// After this time without a completion a channel counts as lost. Far beyond what the transport
/// needs to give up on a peer.
const DEFAULT_OPERATION_TIMEOUT: Duration = Duration::from_secs(120);

/// Name of operations in the library's telemetry.
const KEY: &[u8] = b"vgwrdma";

/// A channel of a server: a queue pair and its completion queue.
///
/// At most [`DEPTH`] operations are in flight. An operation owns its memory until its completion
/// gives it back, so it cannot be touched meanwhile:
///
/// ```compile_fail,E0382
/// # use vgwrdma::rdma::{Channel, Operation};
/// fn reuse(channel: &mut Channel, operation: Operation) {
///     let _ = channel.submit(operation);
///     drop(operation.local); // moved into the channel
/// }
/// ```
///
/// A channel moves between threads but is not shared by them:
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<vgwrdma::rdma::Channel>();
/// ```
///
/// Dropping it waits for its operations as long as the transport may need to give up on a peer.
/// What has not ended then is withheld ([`quarantine`]), with the channel and its server.
pub struct Channel {
    // Fields drop in this order; operations in flight end or are withheld in `drop` already.
    slots: Slots,
    number: u16,
    server: CuServer,
    state: State,
    operation_timeout: Duration,
    /// Cells are `Send` and not `Sync`, and so is the channel: one thread at a time.
    _one_thread: PhantomData<Cell<()>>,
}

#[derive(Debug)]
enum State {
    Open,
    /// An operation failed on a server without queue pair reset: nothing new is accepted, and what
    /// is in flight will be flushed.
    Failed,
    /// The library answered so that nothing is known of the channel any more.
    Lost,
}

impl Channel {
    pub(crate) fn open(server: CuServer) -> Result<Self> {
        let mut number = 0;
        let allocated = {
            let _admin = server.handle.admin();
            shim::call("allocateChannelId", |text| {
                // SAFETY: the server is alive, `number` is writable for the call, and the text
                // buffer is `shim::call`'s.
                unsafe { sys::vgw_cuobj_server_allocate_channel(server.handle.as_raw(), &mut number, text) }
            })
        };
        match allocated {
            Ok(()) => Ok(Self {
                slots: Slots::default(),
                number,
                server,
                state: State::Open,
                operation_timeout: DEFAULT_OPERATION_TIMEOUT,
                _one_thread: PhantomData,
            }),
            Err(Error::Refused { .. }) => Err(Error::NoChannel { address: server.address().to_string() }),
            Err(error) => Err(error),
        }
    }

    /// Its number on the server, from 0.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The server it belongs to.
    pub fn server(&self) -> &CuServer {
        &self.server
    }

    /// Operations submitted and not yet completed.
    pub fn in_flight(&self) -> usize {
        self.slots.len()
    }

    /// Sets after how long without a completion the channel counts as lost. Default 120 s.
    pub fn set_operation_timeout(&mut self, timeout: Duration) {
        self.operation_timeout = timeout;
    }

    /// Submits an operation; [`poll`](Self::poll) tells of its end.
    ///
    /// # Errors
    /// Gives the operation back when it is out of bounds, the channel is full or no longer of use,
    /// or the library refuses. Where the library threw, so that nothing is known of the operation,
    /// its memory is withheld and the channel is lost.
    pub fn submit(&mut self, operation: Operation) -> Result<(), Box<Failed>> {
        self.try_submit(operation).map_err(|refusal| match refusal {
            Refusal::Rejected(error, operation) => failed(error, Some(operation.local)),
            Refusal::Unknown(error) => failed(error, None),
        })
    }

    /// As [`submit`](Self::submit), with the whole operation in the error.
    pub(crate) fn try_submit(&mut self, operation: Operation) -> Result<(), Refusal> {
        let rejected = |error, operation| Err(Refusal::Rejected(error, Box::new(operation)));
        if let Err(error) = self.check(&operation, DEPTH) {
            return rejected(error, operation);
        }
        let name = operation.direction.operation();
        let handle = self.slots.next_handle();
        match self.call(&operation, Some(handle), None) {
            Ok((0, _)) => {
                self.slots.insert(handle, operation.ticket, operation.local, Instant::now());
                Ok(())
            }
            Ok((code, _)) => rejected(call_error(name, code), operation),
            Err(error) if !matches!(error, Error::Exception { .. }) => rejected(error, operation),
            Err(error) => {
                self.state = State::Lost;
                self.withhold_all();
                let bytes = operation.local.len();
                quarantine::withhold((operation, self.server.clone()), bytes);
                Err(Refusal::Unknown(error))
            }
        }
    }

    /// Carries out an operation and waits for its end. Only on a channel with nothing in flight:
    /// the library would lose the completions of other operations.
    ///
    /// `poll_delay` is the sleep between two looks for the completion; by default the server's.
    ///
    /// # Errors
    /// When it is refused or fails. The memory comes back with the error, unless the library threw.
    pub fn transfer(
        &mut self,
        operation: Operation,
        poll_delay: Option<Duration>,
    ) -> Result<Local, Box<Failed>> {
        if let Err(error) = self.check(&operation, 1) {
            return Err(failed(error, Some(operation.local)));
        }
        let name = operation.direction.operation();
        let error = match self.call(&operation, None, poll_delay) {
            Ok((moved, _)) if moved == operation.length as i64 => return Ok(operation.local),
            Ok((_, Some(status))) if !status.is_success() => Error::Completion { operation: name, status },
            Ok((code, _)) if code < 0 => call_error(name, code),
            Ok((moved, _)) => Error::Call {
                operation: name,
                errno: Errno(libc::EIO),
                code: moved,
                detail: format!(": moved {moved} bytes of {}", operation.length),
            },
            Err(error) if !matches!(error, Error::Exception { .. }) => error,
            Err(error) => {
                self.state = State::Lost;
                let bytes = operation.local.len();
                quarantine::withhold((operation, self.server.clone()), bytes);
                return Err(failed(error, None));
            }
        };
        Err(failed(error, Some(operation.local)))
    }

    /// What can be known of an operation without the library, which answers `EIO` to all of it.
    fn check(&self, operation: &Operation, depth: usize) -> Result<()> {
        let name = operation.direction.operation();
        let invalid = |what: String| Err(Error::Invalid { operation: name, what });
        if !matches!(self.state, State::Open) {
            return invalid(format!("channel {} is no longer of use; open another", self.number));
        }
        if self.slots.len() >= depth {
            return invalid(match depth {
                1 => "operations are in flight on the channel; a synchronous one would lose them".into(),
                _ => format!("{depth} operations are in flight on the channel, its most"),
            });
        }
        let most = operation.local.len().min(MAX_OPERATION_BYTES);
        if operation.length == 0 || operation.length > most {
            return invalid(format!("{} bytes; this operation takes 1 to {most}", operation.length));
        }
        if operation.remote_start == 0 {
            return invalid("the client's address is 0".into());
        }
        let window = operation.descriptor.window();
        if let Err(error) = window.narrow(operation.remote_start, operation.length as u64) {
            // The numbers are addresses in the client; sizes are enough to understand.
            return invalid(match error {
                DescriptorError::OutOfWindow { .. } => {
                    format!("{} bytes lie outside the client's window of {}", operation.length, window.size)
                }
                other => other.to_string(),
            });
        }
        if !operation.local.is_with(&self.server) {
            return invalid(format!("the memory is not registered with {}", self.server.address()));
        }
        Ok(())
    }

    /// Calls the library; gives its answer and the status of a completion.
    fn call(
        &self,
        operation: &Operation,
        handle: Option<usize>,
        poll_delay: Option<Duration>,
    ) -> Result<(i64, Option<WcStatus>)> {
        let descriptor = operation.descriptor.to_string();
        let (buffer, local_offset_bytes) = operation.local.as_raw();
        let raw = sys::vgw_cuobj_operation {
            key: KEY.as_ptr().cast(),
            key_length: KEY.len(),
            descriptor: descriptor.as_ptr().cast(),
            descriptor_length: descriptor.len(),
            buffer,
            local_offset_bytes,
            remote_start: operation.remote_start,
            size_bytes: operation.length,
            async_handle: std::ptr::without_provenance_mut(handle.unwrap_or(0)),
            poll_delay_ns: poll_delay
                .map_or(-1, |delay| i64::from(u32::try_from(delay.as_nanos()).unwrap_or(u32::MAX))),
            channel: self.number,
        };
        let (mut result, mut wc_status) = (0, sys::VGW_CUOBJ_NO_COMPLETION);
        let server = self.server.handle.as_raw();
        shim::call(operation.direction.operation(), |text| match operation.direction {
            // SAFETY: the server, the buffer and all that `raw` points to are alive during the call;
            // the device reaches the buffer's memory only within `operation.local`, which `check`
            // has compared and which is owned by the operation until its completion; this thread is
            // the only user of the channel (`&mut self` in the callers, and the type is not `Sync`).
            Direction::Write => unsafe {
                sys::vgw_cuobj_server_get(server, &raw, &mut result, &mut wc_status, text)
            },
            // SAFETY: as for a write.
            Direction::Read => unsafe {
                sys::vgw_cuobj_server_put(server, &raw, &mut result, &mut wc_status, text)
            },
        })?;
        let status = (wc_status != sys::VGW_CUOBJ_NO_COMPLETION).then_some(WcStatus(wc_status));
        Ok((result, status))
    }

    /// Appends the completions that are there; does not wait.
    ///
    /// After a failure every operation of the channel completes, those not carried out as flushed,
    /// and the channel works again (with [`qp_reset_on_failure`](super::Tunables::qp_reset_on_failure)).
    ///
    /// # Errors
    /// When the channel is of no more use: the library threw, the device is gone, an operation
    /// has not ended within the operation timeout, or, without queue pair reset, an operation failed
    /// and the last one has been reported. Memory that the device may still reach is withheld.
    pub fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<()> {
        if self.slots.is_empty() {
            return match self.state {
                State::Open => Ok(()),
                State::Failed | State::Lost => Err(self.gone()),
            };
        }
        let mut events = [sys::vgw_cuobj_event::default(); DEPTH];
        let (mut count, mut answer) = (0, 0);
        let polled = shim::call("poll", |text| {
            // SAFETY: the server is alive, the arrays and numbers are writable for the call, and
            // this thread is the only user of the channel.
            unsafe {
                sys::vgw_cuobj_server_poll(
                    self.server.handle.as_raw(),
                    self.number,
                    events.as_mut_ptr(),
                    events.len(),
                    &mut count,
                    &mut answer,
                    text,
                )
            }
        });
        if let Err(error) = polled {
            return Err(self.lose(error));
        }
        for event in &events[..count] {
            let Some(ended) = self.slots.remove(event.async_handle.addr()) else {
                // Never seen; a library that does it has lost count of its work requests.
                tracing::warn!(channel = self.number, "a completion of an unknown operation is ignored");
                continue;
            };
            let status = WcStatus(u32::try_from(event.wc_status).unwrap_or(u32::MAX));
            completions.push(Completion { ticket: ended.ticket, status, local: ended.local });
        }
        if answer >= 0 {
            return self.check_age(count);
        }
        if answer != -libc::EIO {
            return Err(self.lose(call_error("poll", answer.into())));
        }
        if self.server.tunables().qp_reset_on_failure {
            // The queue pair has been drained and reset: what was not reported is over as well.
            completions.extend(self.slots.drain().map(|ended| Completion {
                ticket: ended.ticket,
                status: WcStatus::WR_FLUSH_ERR,
                local: ended.local,
            }));
        } else {
            self.state = State::Failed;
        }
        Ok(())
    }

    /// Gives the channel up when its oldest operation has waited too long for any completion.
    fn check_age(&mut self, completed: usize) -> Result<()> {
        let Some(oldest) = self.slots.oldest() else { return Ok(()) };
        if completed > 0 || oldest.elapsed() < self.operation_timeout {
            return Ok(());
        }
        let error = Error::Call {
            operation: "poll",
            errno: Errno(libc::ETIMEDOUT),
            code: -i64::from(libc::ETIMEDOUT),
            detail: format!(": {} operations have not ended", self.slots.len()),
        };
        Err(self.lose(error))
    }

    fn gone(&self) -> Error {
        Error::Invalid {
            operation: "poll",
            what: format!("channel {} is no longer of use; open another", self.number),
        }
    }

    fn lose(&mut self, error: Error) -> Error {
        self.state = State::Lost;
        self.withhold_all();
        error
    }

    /// Leaks what is in flight, with the server that the device works for.
    fn withhold_all(&mut self) {
        for ended in self.slots.drain() {
            let bytes = ended.local.len();
            quarantine::withhold((ended.local, self.server.clone()), bytes);
        }
    }

    /// Polls until nothing is in flight or the time is over.
    fn settle(&mut self, limit: Duration) {
        let begin = Instant::now();
        let mut completions = Vec::new();
        let mut pause = Duration::from_micros(20);
        while !self.slots.is_empty() && begin.elapsed() < limit {
            if self.poll(&mut completions).is_err() {
                return;
            }
            if completions.is_empty() {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(5));
            }
            completions.clear();
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.settle(self.server.drain_limit());
        if !self.slots.is_empty() {
            self.state = State::Lost;
            self.withhold_all();
        }
        if !matches!(self.state, State::Open) {
            // Its number must not be given to another, who would get its late completions, or a
            // queue pair that stays in its error state.
            tracing::warn!(channel = self.number, server = %self.server.address(), "RDMA channel lost");
            return;
        }
        let _admin = self.server.handle.admin();
        let freed = shim::call("freeChannelId", |text| {
            // SAFETY: the server is alive, the channel is ours and nothing is in flight on it.
            unsafe { sys::vgw_cuobj_server_free_channel(self.server.handle.as_raw(), self.number, text) }
        });
        if let Err(error) = freed {
            tracing::warn!(channel = self.number, %error, "RDMA channel did not end cleanly");
        }
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("server", &self.server.address())
            .field("number", &self.number)
            .field("in_flight", &self.slots.len())
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

fn failed(error: Error, local: Option<Local>) -> Box<Failed> {
    Box::new(Failed { error, local })
}

fn call_error(operation: &'static str, code: i64) -> Error {
    Error::Call { operation, errno: Errno::of(code), code, detail: String::new() }
}
