//! Lists of transfer schemes.

use fpga_firmware::generated::Scheme;

/// Set of schemes, printed by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SchemeList(
    /// Bit mask: bit n stands for scheme n.
    pub u32,
);

impl SchemeList {
    /// Empty set.
    pub const NONE: Self = Self(0);

    /// Returns the set with `scheme` added.
    #[must_use]
    pub const fn with(self, scheme: Scheme) -> Self {
        Self(self.0 | 1 << scheme.value())
    }

    /// Returns whether the set contains `scheme`.
    #[must_use]
    pub const fn contains(self, scheme: Scheme) -> bool {
        self.0 >> scheme.value() & 1 != 0
    }

    /// Iterates over the known schemes in the set, by number.
    pub fn iter(self) -> impl Iterator<Item = Scheme> {
        Scheme::ALL.iter().copied().filter(move |scheme| self.contains(*scheme))
    }

    /// Returns whether the set contains a message scheme, under which the card sends transfers by itself.
    pub(super) const fn has_messages(self) -> bool {
        self.0 & !Self::NONE.with(Scheme::Registry).0 != 0
    }
}

impl FromIterator<Scheme> for SchemeList {
    fn from_iter<I: IntoIterator<Item = Scheme>>(schemes: I) -> Self {
        schemes.into_iter().fold(Self::NONE, Self::with)
    }
}

impl core::fmt::Display for SchemeList {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut names = self.iter();
        match names.next() {
            None => f.write_str("none that is known"),
            Some(first) => {
                write!(f, "{first}")?;
                names.try_for_each(|name| write!(f, ", {name}"))
            }
        }
    }
}
