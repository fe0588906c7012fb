use super::*;

const LONG: Duration = Duration::from_secs(30);

/// Another thread ends a wait: of a message, and of only one user of a shared vector.
#[test]
fn interrupt_wake_ends_wait() {
    let (interrupt, _trigger) = Interrupt::pair().unwrap();
    interrupt.wake();
    interrupt.wake();
    assert_eq!(interrupt.wait(Duration::ZERO).unwrap(), Some(2));
    assert_eq!(interrupt.try_take(), 0);
    let (source, trigger) = Interrupt::pair().unwrap();
    let users = source.share(2).unwrap();
    users[1].wake();
    assert_eq!((users[0].try_take(), users[1].try_take()), (0, 1));
    trigger.signal();
    assert_eq!((users[1].try_take(), users[0].try_take()), (1, 1));
}

#[test]
fn interrupt_signals_accumulate_and_are_taken_once() {
    let (interrupt, trigger) = Interrupt::pair().unwrap();
    assert_eq!(interrupt.try_take(), 0);
    trigger.signal();
    trigger.clone().signal();
    assert_eq!(interrupt.try_take(), 2);
    assert_eq!(interrupt.try_take(), 0);
}

#[test]
fn interrupt_wait_returns_on_signal_or_timeout() {
    let (interrupt, trigger) = Interrupt::pair().unwrap();
    assert_eq!(interrupt.wait(Duration::ZERO), Ok(None));
    assert_eq!(interrupt.wait(Duration::from_millis(1)), Ok(None));
    trigger.signal();
    assert_eq!(interrupt.wait(LONG), Ok(Some(1)));
    trigger.signal();
    assert_eq!(interrupt.wait(Duration::MAX), Ok(Some(1)), "a time beyond the kernel's range");
}

#[test]
fn interrupt_signal_from_other_thread_wakes_waiter() {
    let (interrupt, trigger) = Interrupt::pair().unwrap();
    let (back, back_trigger) = Interrupt::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..1000 {
                assert_eq!(interrupt.wait(LONG), Ok(Some(1)));
                back_trigger.signal();
            }
        });
        for _ in 0..1000 {
            trigger.signal();
            assert_eq!(back.wait(LONG), Ok(Some(1)));
        }
    });
}

#[test]
fn interrupt_fd_readable_while_signal_pending() {
    let (interrupt, trigger) = Interrupt::pair().unwrap();
    let ready =
        || rustix::event::poll(&mut [PollFd::new(&interrupt, PollFlags::IN)], Some(&Timespec::default()));
    assert_eq!(ready(), Ok(0));
    trigger.signal();
    assert_eq!(ready(), Ok(1));
    assert_eq!(interrupt.try_take(), 1);
    assert_eq!(ready(), Ok(0));
}

#[test]
fn interrupt_full_counter_keeps_signal() {
    let (interrupt, trigger) = Interrupt::pair().unwrap();
    rustix::io::write(trigger.as_fd(), &(u64::MAX - 1).to_ne_bytes()).unwrap();
    trigger.signal();
    assert_eq!(interrupt.try_take(), u64::MAX - 1);
}

#[test]
fn interrupt_foreign_descriptor_must_be_eventfd() {
    for flags in [EventfdFlags::NONBLOCK, EventfdFlags::empty()] {
        let file = rustix::event::eventfd(0, flags).unwrap();
        let trigger = InterruptTrigger::from_descriptor(file.try_clone().unwrap()).unwrap();
        trigger.signal();
        trigger.signal();
        let mut count = [0; 8];
        rustix::io::read(&file, &mut count[..]).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 2);
        // A full counter does not block.
        rustix::io::write(&file, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        trigger.signal();
        rustix::io::read(&file, &mut count[..]).unwrap();
        assert_eq!(u64::from_ne_bytes(count), u64::MAX - 1);
    }
    let (pipe, _end) = rustix::pipe::pipe().unwrap();
    let error = InterruptTrigger::from_descriptor(pipe).unwrap_err();
    assert!(matches!(error, InterruptError::NoDescriptor { .. }), "{error}");
}

#[test]
fn interrupt_shared_vector_reaches_every_user() {
    let (interrupt, trigger) = Interrupt::pair().unwrap();
    let users = interrupt.share(3).unwrap();
    assert!(users[0].shares_with(&users[2]) && !users[0].shares_with(&Interrupt::pair().unwrap().0));
    let readable = |user: &Interrupt| {
        rustix::event::poll(&mut [PollFd::new(user, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
    };
    assert!(users.iter().all(|user| !readable(user) && user.try_take() == 0));
    trigger.signal();
    assert!(users.iter().all(readable), "before anybody has taken it");
    assert_eq!(users[1].try_take(), 1);
    assert_eq!(users[1].try_take(), 0, "taken once by each");
    assert!(!readable(&users[1]));
    assert_eq!(users[0].wait(Duration::from_secs(5)), Ok(Some(1)), "although another one emptied the vector");
    trigger.signal();
    assert_eq!((users[2].try_take(), users[0].try_take()), (2, 1), "what was not taken adds up");
}

#[test]
fn interrupt_level_is_rearmed_through_fd() {
    let (interrupt, _trigger) = Interrupt::pair().unwrap();
    let (unmasked, unmask) = Interrupt::pair().unwrap();
    let users = interrupt.level(Arc::new(unmask)).share(2).unwrap();
    users[1].rearm();
    assert_eq!(unmasked.try_take(), 1);
    let (message, _trigger) = Interrupt::pair().unwrap();
    message.rearm();
    assert_eq!(message.try_take(), 0);
}

#[test]
fn interrupt_wait_any_ends_without_taking() {
    let (first, first_trigger) = Interrupt::pair().unwrap();
    let (second, second_trigger) = Interrupt::pair().unwrap();
    // Clones have one descriptor.
    let any = Interrupt::any(&[first.clone(), second.clone(), first.clone()]).unwrap();
    assert_eq!((any.try_take(), any.wait(Duration::ZERO)), (0, Ok(None)));
    for (interrupt, trigger) in [(&first, &first_trigger), (&second, &second_trigger)] {
        trigger.signal();
        trigger.signal();
        assert_eq!(any.wait(LONG), Ok(Some(1)));
        assert_eq!(any.wait(LONG), Ok(Some(1)), "nothing was taken");
        assert_eq!(interrupt.try_take(), 2);
        assert_eq!(any.try_take(), 0);
    }
    any.wake();
    assert_eq!((any.wait(LONG), first.try_take()), (Ok(Some(1)), 1));
    assert!(!any.is_level() && !any.is_shared());
}

#[test]
fn interrupt_periodic_repeats() {
    let ticking = Interrupt::every(Duration::from_micros(100)).unwrap();
    for _ in 0..3 {
        assert!(ticking.wait(LONG).unwrap().is_some_and(|count| count > 0));
    }
    let never = Interrupt::every(Duration::MAX).unwrap();
    assert_eq!(never.try_take(), 0);
    assert!(Interrupt::every(Duration::ZERO).unwrap().wait(LONG).unwrap().is_some());
}

/// The owner of a non-blocking descriptor makes it block after it was handed over, and fills its counter.
#[test]
fn interrupt_foreign_blocking_fd_signal_does_not_block() {
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    let file = rustix::event::eventfd(0, flags).expect("an event descriptor");
    let owner = file.try_clone().expect("a copy");
    let trigger = InterruptTrigger::from_descriptor(file).expect("an event descriptor");
    rustix::io::write(&owner, &(u64::MAX - 1).to_ne_bytes()).expect("the counter has space");
    rustix::fs::fcntl_setfl(&owner, rustix::fs::OFlags::empty()).expect("the flag is cleared");
    trigger.signal();
    let mut count = [0; 8];
    rustix::io::read(&owner, &mut count[..]).expect("a count");
    assert_eq!(u64::from_ne_bytes(count), u64::MAX - 1);
    trigger.signal();
    rustix::io::read(&owner, &mut count[..]).expect("a count");
    assert_eq!(u64::from_ne_bytes(count), 1);
}
