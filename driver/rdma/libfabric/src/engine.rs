//! The engine of an endpoint: [`Messenger`], or a loopback in unit tests.

use fpga_messages::{
    AccessRequest, Address, AtomicRequest, Completion, Failure, MessengerOptions, Peek, PeerId, PostError,
    ReceiveRequest, Regions, SendRequest,
};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Functions of [`Messenger`] that endpoints use.
pub(crate) trait Engine: Send {
    fn address(&self) -> Address;
    fn add_peer(&mut self, address: Address) -> Option<PeerId>;
    fn send(&mut self, request: &SendRequest) -> Result<(), PostError>;
    fn receive(&mut self, request: &ReceiveRequest) -> Result<(), PostError>;
    fn peek(&mut self, request: &ReceiveRequest, action: Peek) -> Result<(), PostError>;
    fn receive_claimed(&mut self, request: &ReceiveRequest, discard: bool) -> Result<(), PostError>;
    fn cancel(&mut self, context: u64) -> bool;
    fn write(&mut self, request: &AccessRequest) -> Result<(), PostError>;
    fn read(&mut self, request: &AccessRequest) -> Result<(), PostError>;
    fn atomic(&mut self, request: &AtomicRequest) -> Result<(), PostError>;
    fn progress(&mut self) -> usize;
    /// Failure of the card.
    fn failure(&self) -> Option<Failure>;
    fn next_completion(&mut self) -> Option<Completion>;
    fn in_progress(&self) -> usize;
    fn is_idle(&self) -> bool;
    /// Packets that the card has sent and received.
    fn packets(&self) -> Option<(u32, u32)> {
        None
    }
    fn prepare_to_sleep(&mut self) -> Duration;
    fn events(&self) -> Option<BorrowedFd<'_>>;
}

/// Opens the engine that the environment selects.
#[cfg(not(test))]
pub(crate) fn open(options: &MessengerOptions, regions: Arc<Regions>) -> Result<Box<dyn Engine>, String> {
    use crate::atomic_unit::HostAtomics;
    use crate::memory::ApplicationMemory;
    let messenger = fpga_messages::Messenger::open(
        options,
        Arc::new(ApplicationMemory),
        Arc::new(HostAtomics::default()),
        regions,
    );
    Ok(Box::new(messenger.map_err(|error| error.to_string())?))
}

#[cfg(test)]
pub(crate) fn open(options: &MessengerOptions, regions: Arc<Regions>) -> Result<Box<dyn Engine>, String> {
    crate::tests::loopback::open(options, regions)
}

#[cfg(not(test))]
impl Engine for fpga_messages::Messenger {
    fn address(&self) -> Address {
        self.address()
    }

    fn add_peer(&mut self, address: Address) -> Option<PeerId> {
        self.add_peer(address).map_err(|error| crate::log::warn(format_args!("{address}: {error}"))).ok()
    }

    fn send(&mut self, request: &SendRequest) -> Result<(), PostError> {
        self.send(request)
    }

    fn receive(&mut self, request: &ReceiveRequest) -> Result<(), PostError> {
        self.receive(request)
    }

    fn peek(&mut self, request: &ReceiveRequest, action: Peek) -> Result<(), PostError> {
        self.peek(request, action)
    }

    fn receive_claimed(&mut self, request: &ReceiveRequest, discard: bool) -> Result<(), PostError> {
        self.receive_claimed(request, discard)
    }

    fn cancel(&mut self, context: u64) -> bool {
        self.cancel(context)
    }

    fn write(&mut self, request: &AccessRequest) -> Result<(), PostError> {
        self.write(request)
    }

    fn read(&mut self, request: &AccessRequest) -> Result<(), PostError> {
        self.read(request)
    }

    fn atomic(&mut self, request: &AtomicRequest) -> Result<(), PostError> {
        self.atomic(request)
    }

    fn progress(&mut self) -> usize {
        self.progress()
    }

    fn failure(&self) -> Option<Failure> {
        self.failure().cloned()
    }

    fn next_completion(&mut self) -> Option<Completion> {
        self.next_completion()
    }

    fn in_progress(&self) -> usize {
        self.in_progress()
    }

    fn is_idle(&self) -> bool {
        self.is_idle()
    }

    fn packets(&self) -> Option<(u32, u32)> {
        self.packets()
    }

    fn prepare_to_sleep(&mut self) -> Duration {
        self.prepare_to_sleep()
    }

    fn events(&self) -> Option<BorrowedFd<'_>> {
        self.events()
    }
}
