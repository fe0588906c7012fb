//! Refused cards and the reasons; the register catalog; the checksum.

#![expect(clippy::unwrap_used, reason = "an unexpected value in a test helper fails the test")]

use std::cell::RefCell;
use std::collections::BTreeSet;

use fpga_firmware::catalog::{self, AccessKind};
use fpga_firmware::crc::crc32c;
use fpga_firmware::generated::{
    self, BLOCKS, BlockType, CONTRACT_CHECKSUM, CONTRACT_VERSION, Capabilities, IDENTITY_MAGIC, Scheme,
    layout, ni, registry,
};
use fpga_firmware::identity::{self, Block, Identity, IdentityError, IdentityReadError};
use fpga_registers::{BarOffset, Field, RegisterIo};

const BAR: u64 = 0x1_0000;

fn words_of(blocks: &[Block]) -> Vec<u32> {
    identity::encode(7, Capabilities::ALL, blocks)
}

fn usual() -> Vec<u32> {
    words_of(&identity::usual_blocks())
}

fn refused_blocks(change: impl FnOnce(&mut Vec<Block>)) -> IdentityError {
    let mut blocks = identity::usual_blocks();
    change(&mut blocks);
    identity::check(&words_of(&blocks), BAR).unwrap_err()
}

#[test]
fn identity_default_card_is_accepted() {
    let identity = identity::check(&usual(), BAR).unwrap();
    assert_eq!((identity.build(), identity.capabilities()), (7, Capabilities::ALL));
    assert_eq!(identity.blocks(), identity::usual_blocks());
    let ni = identity.block(BlockType::Ni).unwrap();
    assert_eq!((ni.base(), ni.at(ni::NODE_ID)), (BarOffset::new(0x2000), BarOffset::new(0x2000)));
    assert_eq!(ni.at(ni::WINDOW_BASE_HIGH), BarOffset::new(0x203c));
    assert_eq!(ni.block_type(), Some(BlockType::Ni));
}

#[test]
fn identity_golden_words_match() {
    let entry = Block { type_number: 3, version: 1, offset: 0x2000, size: 0x1000 };
    let words = identity::encode(0xb, Capabilities::EVENT_PUSH, &[entry]);
    assert_eq!(
        words,
        [0x464e_4943, 0x0004_0001, CONTRACT_CHECKSUM, 0xb, 1, 1, 0x0001_0003, 0x2000, 0x1000, 0]
    );
    assert_eq!(words[0].to_le_bytes(), *b"CINF");
}

#[test]
fn identity_other_contract_is_refused() {
    let refused = |place: usize, value: u32| {
        let mut words = usual();
        words[place] = value;
        identity::check(&words, BAR).unwrap_err()
    };
    assert_eq!(refused(0, u32::MAX), IdentityError::AllOnes);
    assert_eq!(refused(0, 0), IdentityError::WrongMagic { found: 0 });
    let newer = refused(1, 0x0004_0002);
    assert_eq!(newer, IdentityError::WrongVersion { found: 0x0004_0002, supported: CONTRACT_VERSION });
    assert_eq!(
        newer.to_string(),
        "the bitstream speaks contract 4.2, this software 4.1: update the software"
    );
    assert!(refused(1, 0x0000_0009).to_string().ends_with("this software 4.1: update the bitstream"));
    let found = !CONTRACT_CHECKSUM;
    assert_eq!(refused(2, found), IdentityError::WrongChecksum { found, supported: CONTRACT_CHECKSUM });
    assert_eq!(refused(5, 63), IdentityError::BlockCount { count: 63 });
    // The card disappears after its first word.
    let mut gone = usual();
    gone[1..].fill(u32::MAX);
    assert_eq!(identity::check(&gone, BAR), Err(IdentityError::AllOnes));
    assert_eq!(identity::check(&[u32::MAX], BAR), Err(IdentityError::AllOnes));
    assert_eq!(identity::check(&[IDENTITY_MAGIC], BAR), Err(IdentityError::TooShort { given: 1, needed: 6 }));
    for given in 6..usual().len() {
        let needed = usual().len();
        assert_eq!(identity::check(&usual()[..given], BAR), Err(IdentityError::TooShort { given, needed }));
    }
}

#[test]
fn identity_invalid_block_table_is_refused() {
    use IdentityError as E;
    assert!(
        matches!(refused_blocks(|blocks| blocks[2].size = 0), E::MisplacedBlock { block } if block.type_number == 3)
    );
    assert!(matches!(refused_blocks(|blocks| blocks[2].offset += 2), E::MisplacedBlock { .. }));
    assert!(matches!(refused_blocks(|blocks| blocks[7].size = 0xa004), E::OutsideBar { bar_size: BAR, .. }));
    let mut blocks = identity::usual_blocks();
    blocks[7].offset = 0xa000;
    blocks[7].size = 0x6000;
    assert_eq!(identity::check(&words_of(&blocks), BAR).map(drop), Ok(()), "a block that ends with the BAR");
    assert!(matches!(refused_blocks(|blocks| blocks[7].offset = u32::MAX - 3), E::OutsideBar { .. }));
    let overlap = refused_blocks(|blocks| blocks[3].offset = 0x2ffc);
    assert!(
        matches!(overlap, E::Overlap { first, second } if first.type_number == 3 && second.type_number == 4)
    );
    let short = refused_blocks(|blocks| blocks[2].size = 0xf8);
    assert!(matches!(short, E::TooSmall { needed: 0xfc, .. }), "{short}");
    assert!(matches!(
        refused_blocks(|blocks| blocks[2].version = 2),
        E::WrongBlockVersion { supported: 1, .. }
    ));
    let twice = refused_blocks(|blocks| blocks.push(Block { offset: 0xa000, ..blocks[2] }));
    assert_eq!(twice, E::Duplicate { block_type: BlockType::Ni });
    for (place, info) in BLOCKS.iter().enumerate() {
        let missing = refused_blocks(|blocks| {
            blocks.remove(place);
        });
        assert_eq!(missing, E::Missing { block_type: info.block_type });
    }
}

#[test]
fn identity_permitted_block_tables_are_accepted() {
    let accepted =
        |capabilities, blocks: &[Block]| identity::check(&identity::encode(0, capabilities, blocks), BAR);
    let mut blocks = identity::usual_blocks();
    // A type of a newer build, and a second CDMA engine.
    blocks.push(Block { type_number: 0x99, version: 9, offset: 0xb000, size: 4 });
    blocks.push(Block { offset: 0xa000, ..blocks[1] });
    let identity = accepted(Capabilities::ALL, &blocks).unwrap();
    assert_eq!(identity.blocks_of(BlockType::Cdma).count(), 2);
    assert_eq!(identity.block(BlockType::Cdma).unwrap().offset, 0x1000);
    // A full table.
    let mut full = blocks.clone();
    for number in (0_u16..).take(62 - blocks.len()) {
        full.push(Block {
            type_number: 0x100 + number,
            version: 1,
            offset: 0xc000 + u32::from(number) * 4,
            size: 4,
        });
    }
    assert_eq!(accepted(Capabilities::ALL, &full).unwrap().blocks().len(), 62);
    // No fault log without the capability.
    blocks.remove(7);
    assert!(accepted(Capabilities::EVENT_PUSH, &blocks).is_ok());
}

/// Registers that are words of memory, and which of them were read.
struct Words(Vec<u32>, RefCell<Vec<u64>>);

impl RegisterIo for Words {
    type Error = &'static str;

    fn read32(&self, at: BarOffset) -> Result<u32, Self::Error> {
        self.1.borrow_mut().push(at.get());
        let index = usize::try_from(at.get() / 4).unwrap();
        self.0.get(index).copied().ok_or("no such word")
    }

    fn write32(&self, _: BarOffset, _: u32) -> Result<(), Self::Error> {
        Err("read only")
    }
}

#[test]
fn identity_check_reads_only_own_registers() {
    let read = |words: Vec<u32>| {
        let io = Words(words, RefCell::default());
        let outcome = Identity::read(&io, BAR);
        (outcome, io.1.into_inner())
    };
    let (outcome, touched) = read(usual());
    assert_eq!(outcome, Ok(identity::check(&usual(), BAR).unwrap()));
    assert_eq!(touched, (0..4 * usual().len() as u64).step_by(4).collect::<Vec<_>>());
    // Only the first word of a foreign card is read.
    let (outcome, touched) = read(vec![0x1234_5678; 100]);
    assert_eq!(outcome, Err(IdentityReadError::Refused(IdentityError::WrongMagic { found: 0x1234_5678 })));
    assert_eq!(touched, [0]);
    // An impossible count is not used.
    let mut words = usual();
    words[5] = 0x4000_0000;
    let (outcome, touched) = read(words);
    assert_eq!(outcome, Err(IdentityReadError::Refused(IdentityError::BlockCount { count: 0x4000_0000 })));
    assert_eq!(touched.len(), 6);
    let (outcome, _) = read(usual()[..9].to_vec());
    assert_eq!(outcome, Err(IdentityReadError::Access { at: BarOffset::new(36), error: "no such word" }));
}

#[test]
fn identity_checksum_matches_canonical_text() {
    let canonical = include_bytes!("../map/ni.canonical");
    assert_eq!(crc32c(canonical), CONTRACT_CHECKSUM);
    assert!(canonical.is_ascii() && canonical.ends_with(b"\n"));
}

#[test]
fn catalog_is_consistent() {
    let mut names = BTreeSet::new();
    for block in BLOCKS {
        assert!(core::ptr::eq(catalog::block(block.block_type).unwrap(), block));
        assert!(block.span() <= block.size);
        for register in block.registers {
            let name = format!("{}.{}", block.name, register.name());
            let found = catalog::find(&name.to_uppercase()).unwrap();
            assert!(core::ptr::eq(found.0, block) && core::ptr::eq(found.1, register));
            assert!(core::ptr::eq(block.register_at(register.offset()).unwrap(), register));
            assert!(register.offset() % 4 == 0 && !register.doc().is_empty());
            assert!(register.access().is_readable() || register.reset().is_none());
            assert!(names.insert(name));
        }
    }
    assert_eq!(catalog::registers().count(), names.len());
    for none in ["ni", "ni.none", "none.index"] {
        assert!(catalog::find(none).is_none(), "{none}");
    }
    assert!(BLOCKS[2].register_at(0x34 + 1).is_none());
}

#[test]
fn catalog_decodes_fields() {
    let (_, control) = catalog::find("ni.event_interrupt").unwrap();
    let decoded = control.decode(0xffff_f501);
    let fields: Vec<_> = decoded.fields().map(|field| (field.name(), field.value())).collect();
    assert_eq!(fields, [("enable", 1), ("line", 5)]);
    let (_, scheme) = catalog::find("ni.scheme").unwrap();
    assert_eq!((scheme.value_name(5), scheme.value_name(6)), (Some("Selective"), None));
    assert_eq!(
        (control.access(), catalog::find("memory.commit").unwrap().1.access()),
        (AccessKind::ReadWrite, AccessKind::WriteOnly)
    );
    let whole = Field::at("", 31, 0, "");
    assert_eq!(whole.extract(0xdead_beef), 0xdead_beef);
}

/// The places that other packages rely on, typed a second time.
#[test]
fn contract_offsets_match_table() {
    let offsets: Vec<_> = BLOCKS.iter().map(|block| (block.name, block.default_offset)).collect();
    assert_eq!(
        offsets,
        [
            ("identity", 0),
            ("cdma", 0x1000),
            ("ni", 0x2000),
            ("counters", 0x3000),
            ("registry", 0x4000),
            ("escape", 0x5000),
            ("memory", 0x6000),
            ("fault_log", 0x7000),
            ("sending", 0x8000),
            ("rates", 0x9000),
        ]
    );
    assert_eq!((registry::MASK, registry::MASK_COUNT, registry::OCCUPANCY), (0x40, 8, 0x80));
    assert_eq!((ni::control::ENABLE, ni::control::EVENT_ENABLE), (1, 4));
    assert_eq!(
        (layout::window_header::LAYOUT_SIZE, layout::event::SEQUENCE, layout::data::LAYOUT_SIZE),
        (128, 60, 56)
    );
    assert_eq!((layout::start::LAYOUT_SIZE, layout::ack::LAYOUT_SIZE), (88, 36));
    assert_eq!(generated::MASK_WORDS * 32, u32::from(generated::SEGMENT_PACKETS_MAX));
}

#[test]
fn contract_enums_and_bit_sets_match_table() {
    for kind in BlockType::ALL {
        assert_eq!(BlockType::try_from(kind.value()), Ok(*kind));
    }
    // 2 and 3 are reserved.
    for number in [2, 3, 6] {
        let error = Scheme::try_from(number).unwrap_err();
        assert_eq!((error.of, error.value), ("Scheme", number));
    }
    let some = Capabilities::EVENT_PUSH | Capabilities::FAULT_LOG;
    assert_eq!(some.to_string(), "EVENT_PUSH|FAULT_LOG");
    assert_eq!(Capabilities::from_bits(0x8000_0001).to_string(), "EVENT_PUSH|0x80000000");
    assert_eq!(
        (Capabilities::NONE.to_string(), Capabilities::from_bits(0x80).unknown().bits()),
        ("-".into(), 0x80)
    );
    assert!(some.contains(Capabilities::FAULT_LOG) && !some.contains(Capabilities::OP_TABLE));
    assert!(!Capabilities::EVENT_PUSH.contains(some) && some.contains(Capabilities::NONE));
    assert_eq!(Capabilities::default(), Capabilities::NONE);
    assert_eq!(format!("[{:>9}] {:<9}]", Scheme::Registry, Scheme::Registry), "[ Registry] Registry ]");
}
