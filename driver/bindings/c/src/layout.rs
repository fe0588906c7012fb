//! Structures that C programs pass by address.

/// Structure that C programs see, made by [`c_struct`] only.
///
/// # Safety
/// Every bit pattern is a value of the type.
pub(crate) unsafe trait CStruct: Copy {
    /// Name in the header.
    #[cfg(test)]
    const NAME: &'static str;

    /// Names and offsets of the members.
    #[cfg(test)]
    fn members() -> Vec<(&'static str, usize)>;
}

/// Type of a member: every bit pattern is a value.
///
/// # Safety
/// Integers, pointers, structures of them and arrays of them only.
pub(crate) unsafe trait Member {}

macro_rules! members {
    ($($type:ty),*) => {
        // SAFETY: integers.
        $(unsafe impl Member for $type {})*
    };
}
members!(u8, u32, i32, u64, usize);
// SAFETY: an address that is only dereferenced after a check.
unsafe impl<T> Member for *const T {}
// SAFETY: an address that is only dereferenced after a check.
unsafe impl<T> Member for *mut T {}
// SAFETY: members without padding between them.
unsafe impl<T: Member, const N: usize> Member for [T; N] {}

/// Defines a structure with the layout of C.
macro_rules! c_struct {
    ($(#[$meta:meta])* $name:ident = $c:literal { $($(#[$doc:meta])* $member:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy)]
        #[repr(C)]
        pub(crate) struct $name {
            $($(#[$doc])* pub(crate) $member: $type,)*
        }

        // SAFETY: its members are, which the constant checks.
        unsafe impl $crate::layout::CStruct for $name {
            #[cfg(test)]
            const NAME: &'static str = $c;

            #[cfg(test)]
            fn members() -> Vec<(&'static str, usize)> {
                vec![$((stringify!($member), core::mem::offset_of!($name, $member))),*]
            }
        }

        const _: () = {
            const fn member<T: $crate::layout::Member>() {}
            $(member::<$type>();)*
        };

        // SAFETY: its members are.
        unsafe impl $crate::layout::Member for $name {}
    };
}
pub(crate) use c_struct;

/// Returns a structure of zeros.
pub(crate) fn zeroed<T: CStruct>() -> T {
    // SAFETY: every bit pattern is a value of the type.
    unsafe { core::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::process::Command;

    use super::*;
    use crate::call::read_options;

    fn check<T: CStruct>(program: &mut String) {
        let name = T::NAME;
        writeln!(program, "_Static_assert(sizeof({name}) == {}, \"{name}\");", size_of::<T>()).unwrap();
        for (member, offset) in T::members() {
            writeln!(program, "_Static_assert(offsetof({name}, {member}) == {offset}, \"{name}.{member}\");")
                .unwrap();
        }
    }

    #[test]
    fn structures_have_layout_of_header() {
        let mut program = String::from("#include <fpga.h>\n");
        macro_rules! check_all {
            ($($type:ty),* $(,)?) => { $(check::<$type>(&mut program);)* };
        }
        check_all!(
            crate::card::CardInfo,
            crate::card::COpen,
            crate::cdma_ring::COptions,
            crate::cdma_ring::CCopy,
            crate::error::ErrorView,
            crate::channel::COptions,
            crate::channel::CWait,
            crate::transfer::CSegment,
            crate::stream::COptions,
            crate::stream::CPiece,
            crate::stream::CStatistics,
            crate::map::CEntry,
            crate::interrupt::CLine,
            crate::interrupt::CStates,
            crate::recovery::COptions,
            crate::recovery::CStep,
            crate::recovery::CReport,
            crate::network::COptions,
            crate::endpoint_options::COptions,
            crate::endpoint_options::CSend,
            crate::endpoint::CInfo,
            crate::endpoint::CCompletion,
            crate::endpoint::CNotification,
            crate::endpoint::CPeer,
            crate::endpoint::CCounters,
            crate::remote::CRegion,
            crate::remote::CReadable,
            crate::region::CRead,
            crate::publisher::CPublisher,
            crate::subscriber::CSubscriber,
            crate::publisher::CPublisherState,
            crate::publisher::CPublisherEvent,
            crate::subscriber::CEvent,
            crate::subscriber::CSubscriberState,
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("layout.c");
        std::fs::write(&file, program).unwrap();
        let include = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
        let done = Command::new("cc").args(["-std=c11", "-fsyntax-only", "-I", include]).arg(file).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    #[test]
    fn options_of_newer_caller_are_refused_if_set() {
        let mut bytes = [0_u8; size_of::<crate::card::CardInfo>() + 8];
        let from = bytes.as_ptr().cast::<crate::card::CardInfo>();
        assert!(read_options(from, bytes.len()).is_ok());
        *bytes.last_mut().unwrap() = 1;
        let from = bytes.as_ptr().cast::<crate::card::CardInfo>();
        assert!(read_options(from, bytes.len()).is_err());
    }
}
