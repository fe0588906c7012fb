//! Servers that do one thing wrong: a typed error that names the message, immediate failure of every later request, and no leaked file
//! descriptor.

use std::time::Duration;

use fpga_pci::{
    Backend, ConfigSpaceError, ConnectionError, DmaAccess, DmaMapError, InterruptError, MmioError,
    ResetError, ResetLevel, ServerError, SharedMemory,
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

/// Whether the server violated the protocol in this way.
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
