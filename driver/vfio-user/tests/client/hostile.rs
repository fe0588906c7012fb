//! Servers that do one thing wrong: a typed error that names the message, immediate failure of every later request, and no leaked file
//! descriptor.

use std::time::Duration;

use fpga_pci::{
    Backend, ConfigSpaceError, ConnectionError, DmaAccess, DmaMapError, InterruptError, MmioError,
    ResetError, ResetLevel, ServerError, SharedMemory, config,
};
use fpga_registers::{BarOffset, Iova};
use fpga_vfio_user::wire::Command;
use fpga_vfio_user::{VfioUserBackend, VfioUserOpenError, VfioUserOptions};

use crate::server::{Device, LONG_TIMEOUT, Server, ServerFault};
use crate::{alone, open_files};

/// Messages of opening a device.
const OPEN_MESSAGES: [Command; 5] = [
    Command::VERSION,
    Command::DEVICE_GET_INFO,
    Command::DEVICE_GET_REGION_INFO,
    Command::DEVICE_GET_IRQ_INFO,
    Command::REGION_READ,
];

/// Messages of a backend in use.
const IN_USE: [Command; 6] = [
    Command::REGION_READ,
    Command::REGION_WRITE,
    Command::DMA_MAP,
    Command::DMA_UNMAP,
    Command::DEVICE_SET_IRQS,
    Command::DEVICE_RESET,
];

fn options(deadline: Duration) -> VfioUserOptions {
    VfioUserOptions::default().deadline(deadline)
}

/// Opens the device; returns the reason of a failure.
fn open(server: &Server, deadline: Duration) -> Result<VfioUserBackend, ServerError> {
    VfioUserBackend::open_with(&server.path, options(deadline)).map_err(|error| match error {
        VfioUserOpenError::Server { source, .. }
        | VfioUserOpenError::Config(ConfigSpaceError::Server { source, .. }) => source,
        other => panic!("{other}"),
    })
}

/// Makes the client send `command`; returns the result.
fn use_it(backend: &VfioUserBackend, command: Command) -> Result<(), ServerError> {
    let iova = Iova::new(0x10_0000);
    let map = || {
        let memory = SharedMemory::memfd("fpga-dma", 4096).unwrap();
        backend.map_dma(iova, &memory, DmaAccess::Both)
    };
    let dma = |error| match error {
        DmaMapError::Server { source, .. } => source,
        other => panic!("{other}"),
    };
    match command {
        Command::REGION_READ => {
            let bar = backend.open_bar(0).unwrap();
            bar.read32(BarOffset::new(0)).map(|_| ()).map_err(|error| match error {
                MmioError::Server { source, .. } => source,
                other => panic!("{other}"),
            })
        }
        Command::REGION_WRITE => backend.config_write(0x3C, &[1]).map_err(|error| match error {
            ConfigSpaceError::Server { source, .. } => source,
            other => panic!("{other}"),
        }),
        Command::DMA_MAP => map().map_err(dma),
        Command::DMA_UNMAP => {
            map().map_err(dma)?;
            backend.unmap_dma(iova, 4096).map_err(dma)
        }
        Command::DEVICE_SET_IRQS => backend.enable_interrupts(2).map(|_| ()).map_err(|error| match error {
            InterruptError::Server { source, .. } => source,
            other => panic!("{other}"),
        }),
        Command::DEVICE_RESET => backend.reset(ResetLevel::Function).map_err(|error| match error {
            ResetError::Server { source, .. } => source,
            other => panic!("{other}"),
        }),
        other => panic!("{other}"),
    }
}

/// Checks the result of a fault; `None` where the client may accept the reply anyway.
fn check(command: Command, twist: ServerFault, error: ServerError) {
    let name = format!("{twist:?} of {command}: {error}");
    match (twist, error) {
        // Accesses are known without their replies: the connection stays open.
        (ServerFault::NoReply, ServerError::TimedOut { request, .. }) => {
            assert_eq!((Some(request), command), (command.name(), Command::REGION_READ), "{name}");
        }
        (ServerFault::Refuse(errno), ServerError::Refused { request, source }) => {
            assert_eq!(
                (Some(request), source.raw()),
                (command.name(), i32::try_from(errno).unwrap()),
                "{name}"
            );
        }
        (_, ServerError::ConnectionLost { request, cause }) => {
            assert_eq!(Some(request), command.name(), "{name}");
            let fits = match twist {
                ServerFault::NoReply => matches!(cause, ConnectionError::TimedOut { .. }),
                ServerFault::Close | ServerFault::CloseWithin(_) => cause == ConnectionError::Closed,
                ServerFault::WrongId | ServerFault::WrongCommand => is_protocol(cause, "another message"),
                ServerFault::Length(_) => {
                    is_protocol(cause, "another length")
                        || is_protocol(cause, "JSON")
                        || is_protocol(cause, "count")
                }
                ServerFault::Garbage => {
                    is_protocol(cause, "neither request nor reply") || is_protocol(cause, "not allowed")
                }
                ServerFault::Descriptors(_) => is_protocol(cause, "file descriptors that do not belong"),
                ServerFault::Flip(_) => is_protocol(cause, "a reply about another"),
                _ => false,
            };
            assert!(fits, "{name}");
        }
        _ => panic!("{name}"),
    }
}

/// Returns whether the server violated the protocol in this way.
fn is_protocol(cause: ConnectionError, expected: &str) -> bool {
    matches!(cause, ConnectionError::Protocol { problem, .. } if problem.contains(expected))
}

/// Faults that end every exchange in which they occur.
fn twists(command: Command) -> Vec<ServerFault> {
    let mut twists = vec![
        ServerFault::Refuse(22),
        // Not error numbers, but a server may return them.
        ServerFault::Refuse(0),
        ServerFault::Refuse(70_000),
        ServerFault::Close,
        ServerFault::CloseWithin(1),
        ServerFault::CloseWithin(15),
        ServerFault::WrongId,
        ServerFault::WrongCommand,
        ServerFault::Garbage,
        // A region has one descriptor where it is shared.
        ServerFault::Descriptors(2),
    ];
    match command {
        // Empty replies cannot be truncated.
        Command::DMA_MAP | Command::DEVICE_SET_IRQS | Command::DEVICE_RESET => {
            twists.push(ServerFault::Length(1))
        }
        Command::VERSION => twists.push(ServerFault::CloseWithin(20)),
        _ => twists.extend([ServerFault::Length(-1), ServerFault::Length(-12), ServerFault::CloseWithin(20)]),
    }
    match command {
        Command::REGION_READ | Command::REGION_WRITE => {
            twists.extend([ServerFault::Length(4), ServerFault::Flip(0), ServerFault::Flip(8)])
        }
        Command::DMA_UNMAP | Command::DEVICE_GET_IRQ_INFO | Command::DEVICE_GET_REGION_INFO => {
            twists.push(ServerFault::Flip(8))
        }
        _ => {}
    }
    twists
}

#[test]
fn hostile_open_fails_naming_message() {
    let _alone = alone();
    for command in OPEN_MESSAGES {
        for twist in twists(command) {
            let before = open_files();
            let server = Server::start(Device { twist: Some((command, twist)), ..Device::default() });
            let error = open(&server, LONG_TIMEOUT).expect_err(&format!("{twist:?} of {command}"));
            check(command, twist, error);
            server.finish();
            assert_eq!(open_files(), before, "{twist:?} of {command} left files open");
        }
    }
}

#[test]
fn hostile_card_in_use_fails_naming_message_then_fast() {
    let _alone = alone();
    for command in IN_USE {
        for twist in twists(command) {
            let before = open_files();
            let server = Server::start(Device::default());
            let backend = open(&server, LONG_TIMEOUT).unwrap();
            server.with(|device| device.twist = Some((command, twist)));
            let outcome = use_it(&backend, command);
            // When the server closes its end, all mappings are removed.
            if command == Command::DMA_UNMAP
                && matches!(twist, ServerFault::Close | ServerFault::CloseWithin(_))
            {
                assert_eq!(outcome, Ok(()));
                drop(backend);
                server.finish();
                continue;
            }
            let error = outcome.expect_err(&format!("{twist:?} of {command}"));
            check(command, twist, error);
            if let ServerError::ConnectionLost { request, cause } = error {
                for later in [Command::REGION_READ, Command::DMA_MAP, Command::DEVICE_SET_IRQS] {
                    assert_eq!(use_it(&backend, later), Err(ServerError::Disconnected { request, cause }));
                }
            }
            drop(backend);
            server.finish();
            assert_eq!(open_files(), before, "{twist:?} of {command} left files open");
        }
    }
}

/// Each case waits for a deadline, so there are few.
#[test]
fn hostile_silent_server_times_out_naming_message() {
    let _alone = alone();
    let deadline = Duration::from_millis(150);
    for command in [Command::VERSION, Command::REGION_READ, Command::DMA_MAP, Command::DEVICE_RESET] {
        let before = open_files();
        let server = Server::start(Device::default());
        let silent = |device: &mut Device| device.twist = Some((command, ServerFault::NoReply));
        let error = if command == Command::VERSION {
            server.with(silent);
            open(&server, deadline).expect_err("silence")
        } else {
            let backend = open(&server, deadline).unwrap();
            server.with(silent);
            use_it(&backend, command).expect_err("silence")
        };
        check(command, ServerFault::NoReply, error);
        let text = error.to_string();
        assert!(text.contains(&command.to_string()) && text.contains("150ms"), "{text}");
        server.finish();
        assert_eq!(open_files(), before, "silence to {command} left files open");
    }
}

/// A server that was stopped for longer than the limit: accesses fail, and the card works again with the server.
#[test]
fn hostile_late_reply_leaves_card_usable() {
    let _alone = alone();
    let server = Server::start(Device::default());
    let backend = open(&server, Duration::from_millis(150)).unwrap();
    let bar = backend.open_bar(0).unwrap();
    let read = || bar.read32(BarOffset::new(4));
    let slow = |result: Result<u32, MmioError>| {
        let error = result.unwrap_err();
        assert!(!error.is_gone() && error.to_string().contains("has not answered"), "{error}");
        assert_eq!(error.help().as_deref(), Some("let the server run, or allow more time for an answer"));
        matches!(error, MmioError::Server { source, .. } if source.is_timed_out())
    };
    for _ in 0..2 {
        server.with(|device| device.twist = Some((Command::REGION_READ, ServerFault::HoldReply)));
        assert!(slow(read()));
        // Nothing is sent before the late reply has arrived: each access fails at once.
        let writes = server.with(|device| device.writes.len());
        assert!((0..1000).all(|_| slow(read()) && bar.write32(BarOffset::new(0), 7).is_err()));
        assert_eq!(server.with(|device| device.writes.len()), writes);
        let identity = config::identity(&backend);
        assert!(matches!(identity, Err(ConfigSpaceError::Server { source, .. }) if source.is_timed_out()));
        server.with(Device::send_held);
        assert_eq!(read(), Ok(0x0706_0504));
    }
    use_it(&backend, Command::DMA_MAP).unwrap();
    // The thread that answers the server's requests takes a late reply as well.
    let events = backend.events().unwrap();
    server.with(|device| device.twist = Some((Command::REGION_READ, ServerFault::HoldReply)));
    assert!(slow(read()));
    server.with(Device::send_held);
    assert_eq!(read(), Ok(0x0706_0504));
    assert_eq!(events.poll(), None);
    drop(backend);
    server.finish();
}

/// A request without a reply fails after the limit, and costs no other request its answer.
#[test]
fn hostile_unanswered_read_does_not_make_server_slow() {
    let _alone = alone();
    let server = Server::start(Device::default());
    let backend = open(&server, Duration::from_secs(1)).unwrap();
    let bar = backend.open_bar(0).unwrap();
    let read = || bar.read32(BarOffset::new(4));
    server.with(|device| device.twist = Some((Command::REGION_READ, ServerFault::HoldReply)));
    std::thread::scope(|scope| {
        let late = scope.spawn(read);
        while server.with(|device| device.held.is_none()) {
            std::thread::yield_now();
        }
        while !late.is_finished() {
            assert_eq!(read(), Ok(0x0706_0504));
        }
        let error = late.join().unwrap().unwrap_err();
        assert!(matches!(error, MmioError::Server { source, .. } if source.is_timed_out()), "{error:?}");
    });
    assert_eq!(read(), Ok(0x0706_0504));
    server.with(Device::send_held);
    assert_eq!(read(), Ok(0x0706_0504));
    drop(bar);
    drop(backend);
    server.finish();
}

/// A server that takes no more messages: posted writes fail when the socket is full, and those that succeeded arrive once, in order.
#[test]
fn hostile_full_socket_loses_and_repeats_no_write() {
    let _alone = alone();
    let server = Server::start(Device::default());
    let backend = open(&server, Duration::from_millis(150)).unwrap();
    let bar = backend.open_bar(0).unwrap();
    let before = server.with(|device| device.writes.len());
    let stopped = server.device.lock().unwrap();
    let mut written: Vec<u32> = Vec::new();
    let error = (0..).find_map(|value| match bar.write32(BarOffset::new(8), value) {
        Ok(()) => {
            written.push(value);
            None
        }
        Err(error) => Some(error),
    });
    let timed_out = matches!(error, Some(MmioError::Server { source: ServerError::TimedOut { .. }, .. }));
    assert!(timed_out, "{error:?}");
    // The server is not waited for again: a thousand times the limit would take minutes.
    assert!((0..1000).all(|_| bar.write32(BarOffset::new(8), u32::MAX).is_err()));
    drop(stopped);
    let last = loop {
        match bar.read32(BarOffset::new(8)) {
            Ok(value) => break value,
            Err(error) => assert!(!error.is_gone(), "{error}"),
        }
        std::thread::yield_now();
    };
    assert_eq!(Some(&last), written.last());
    let arrived = server.with(|device| device.writes.split_off(before));
    let values = arrived.iter().map(|(_, _, bytes)| u32::from_le_bytes(bytes[..].try_into().unwrap()));
    assert_eq!(values.collect::<Vec<_>>(), written);
    drop(backend);
    server.finish();
}

/// A server with its own requests gets its replies, and then sends the client's.
#[test]
fn hostile_server_requests_are_answered_in_between() {
    let _alone = alone();
    let server = Server::start(Device::default());
    let backend = open(&server, LONG_TIMEOUT).unwrap();
    for command in IN_USE {
        server.with(|device| device.twist = Some((command, ServerFault::RequestFirst)));
        if command == Command::DMA_UNMAP {
            backend.unmap_dma(Iova::new(0x10_0000), 4096).unwrap();
        } else {
            use_it(&backend, command).unwrap_or_else(|error| panic!("{command}: {error}"));
        }
    }
    drop(backend);
    server.finish();
}

/// Descriptors above every limit are closed, too.
#[test]
fn hostile_descriptor_flood_is_closed() {
    let _alone = alone();
    let before = open_files();
    let server = Server::start(Device::default());
    let backend = open(&server, LONG_TIMEOUT).unwrap();
    server.with(|device| device.twist = Some((Command::REGION_READ, ServerFault::Descriptors(64))));
    let error = use_it(&backend, Command::REGION_READ).unwrap_err();
    check(Command::REGION_READ, ServerFault::Descriptors(64), error);
    drop(backend);
    server.finish();
    assert_eq!(open_files(), before);
}

/// Memory mapped when the server exits is returned; memory of a server that may still run is kept.
#[test]
fn hostile_memory_returns_after_server_exit() {
    let _alone = alone();
    let iova = Iova::new(0x10_0000);
    for (twist, fine) in [(ServerFault::Close, true), (ServerFault::WrongId, false)] {
        let server = Server::start(Device::default());
        let backend = open(&server, LONG_TIMEOUT).unwrap();
        let memory = SharedMemory::memfd("fpga-dma", 4096).unwrap();
        backend.map_dma(iova, &memory, DmaAccess::Both).unwrap();
        server.with(|device| device.twist = Some((Command::REGION_READ, twist)));
        use_it(&backend, Command::REGION_READ).unwrap_err();
        assert_eq!(backend.unmap_dma(iova, 4096).is_ok(), fine, "{twist:?}");
        drop(backend);
        server.finish();
    }
}
