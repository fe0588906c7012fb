//! Conversion of the file to the map: `like` blocks are completed, arrays are laid out, all rules are checked.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use fpga_input::{FileKind, plain_message, shortened};
use fpga_registers::BarOffset;

use crate::check::{WORD, key};
use crate::error::{MapError, Problem};
use crate::locate::{Place, Step, dotted, locate};
use crate::map::{MapField, MapRegister, RegisterMap, Shape, Values};
use crate::name::{in_order, is_name, nearest};
use crate::schema::{Block, Enumeration, File, Register, SCHEMA_VERSION, Variant};

/// Maximum number of registers of a map: one mebibyte of them.
const MAX_REGISTERS: usize = 1 << 18;
/// Maximum size of a BAR.
const MAX_BAR_SIZE: u64 = 1 << 40;

/// A problem, its object, and its position in the file.
struct Diagnostic {
    way: Vec<Step>,
    what: String,
    problem: Problem,
}

fn wrong(way: &[Step], at: &str, what: impl Into<String>, problem: Problem) -> Diagnostic {
    let mut way = way.to_vec();
    way.push(key(at));
    Diagnostic { way, what: what.into(), problem }
}

impl RegisterMap {
    /// Reads a map from a file.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn load(file: &Path) -> Result<Self, MapError> {
        Self::parse(file, &read(file)?)
    }

    /// Reads a map from `reader`; `file` is only named in errors.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn read(file: &Path, reader: impl Read) -> Result<Self, MapError> {
        Self::parse(file, &FileKind::REGISTER_MAP.read_from(file, reader)?)
    }

    /// Reads a map's `text`; `file` is only named in errors.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, MapError> {
        let (parsed, mut map) = check(file, text)?;
        let registers = parsed.blocks.into_iter().flat_map(|block| block.registers);
        map.docs = registers.map(|register| register.doc).collect();
        Ok(map)
    }
}

/// Reads a map's text.
pub(crate) fn read(file: &Path) -> Result<String, MapError> {
    Ok(FileKind::REGISTER_MAP.read(file)?)
}

/// Parses a text to a file and its map; the documentation of the registers is moved to the map.
pub(crate) fn check(path: &Path, text: &str) -> Result<(File, RegisterMap), MapError> {
    FileKind::REGISTER_MAP.check_yaml(path, text)?;
    let file = deserialize(text).map_err(|(way, error)| {
        let Place { line, column } = Place::of(&error);
        let key = dotted(&way);
        // The message of the parser repeats the key and the position.
        let message = plain_message(&error.to_string());
        let message = message.strip_prefix(&format!("{key}: ")).unwrap_or(&message).to_owned();
        let key = shortened(&key).into_owned();
        MapError::Syntax { file: path.to_owned(), line, column, key, message }
    })?;
    let map = assemble(&file).map_err(|Diagnostic { way, what, problem }| {
        let Place { line, column } = locate(text, &way);
        MapError::Invalid {
            file: path.to_owned(),
            line,
            column,
            key: shortened(&dotted(&way)).into_owned(),
            what: shortened(&what).into_owned(),
            problem,
        }
    })?;
    Ok((file, map))
}

/// Deserialises the text; an error contains the path to its key.
fn deserialize(text: &str) -> Result<File, (Vec<Step>, serde_yaml::Error)> {
    serde_path_to_error::deserialize(serde_yaml::Deserializer::from_str(text)).map_err(|error| {
        let way = error.path().iter().filter_map(step).collect();
        (way, error.into_inner())
    })
}

fn step(segment: &serde_path_to_error::Segment) -> Option<Step> {
    use serde_path_to_error::Segment;
    match segment {
        Segment::Seq { index } => Some(Step::Item(*index)),
        Segment::Map { key } => Some(Step::Key(key.clone())),
        Segment::Enum { .. } | Segment::Unknown => None,
    }
}

/// Enums by name in lower case, with their positions.
type EnumIndex<'a> = HashMap<String, (usize, &'a Enumeration)>;

/// Registers of a file, in its order: each has a number.
struct Sources<'a> {
    file: &'a File,
    /// Number of the first register of each block.
    first: Vec<usize>,
}

impl<'a> Sources<'a> {
    fn new(file: &'a File) -> Self {
        let lengths = file.blocks.iter().map(|block| block.registers.len());
        let first = lengths.scan(0, |next, length| Some(std::mem::replace(next, *next + length)));
        Self { file, first: first.collect() }
    }

    /// Numbers of a block's own registers.
    fn of(&self, block: usize) -> Range<usize> {
        let first = self.first.get(block).copied().unwrap_or_default();
        first..first + self.file.blocks.get(block).map_or(0, |block| block.registers.len())
    }

    /// Returns the number of a register's block, and its number in that block.
    fn place(&self, source: usize) -> (usize, usize) {
        // A block without registers of its own begins where the next one does.
        let block = self.first.partition_point(|first| *first <= source).saturating_sub(1);
        (block, source - self.first.get(block).copied().unwrap_or(source))
    }

    fn get(&self, source: usize) -> Option<&'a Register> {
        let (block, at) = self.place(source);
        self.file.blocks.get(block)?.registers.get(at)
    }

    fn way(&self, source: usize) -> Vec<Step> {
        let (block, at) = self.place(source);
        vec![key("blocks"), Step::Item(block), key("registers"), Step::Item(at)]
    }
}

fn assemble(file: &File) -> Result<RegisterMap, Diagnostic> {
    if file.schema_version != SCHEMA_VERSION {
        return Err(wrong(&[], "schema_version", "the file", Problem::Version(file.schema_version)));
    }
    let mut map = RegisterMap {
        name: file.name.clone(),
        doc: file.doc.clone(),
        values: Vec::new(),
        docs: Vec::new(),
        shapes: Vec::new(),
        shape_of: Vec::new(),
        registers: Vec::new(),
        by_name: Vec::new(),
    };
    let enums = enumerations(file, &mut map)?;
    let sources = Sources::new(file);
    shapes(&sources, &enums, &mut map)?;
    let mut layout = Layout { sources: &sources, placed: Vec::new(), spans: Vec::new() };
    for (number, own) in inherited(&sources)?.iter().enumerate() {
        if let Some(block) = file.blocks.get(number) {
            layout.block(number, block, own)?;
        }
    }
    layout.finish(&mut map)?;
    Ok(map)
}

fn enumerations<'a>(file: &'a File, map: &mut RegisterMap) -> Result<EnumIndex<'a>, Diagnostic> {
    let mut index = EnumIndex::new();
    for (number, enumeration) in file.enums.iter().enumerate() {
        let way = [key("enums"), Step::Item(number)];
        let what = format!("enum {}", enumeration.name);
        if !is_name(&enumeration.name) {
            return Err(wrong(&way, "name", what, Problem::Name(enumeration.name.clone())));
        }
        if enumeration.variants.is_empty() {
            return Err(wrong(&way, "variants", what, Problem::Empty));
        }
        let (mut names, mut numbers) = (HashSet::new(), HashMap::new());
        for (at, variant) in enumeration.variants.iter().enumerate() {
            let way = [&way[..], &[key("variants"), Step::Item(at)]].concat();
            let what = || format!("{what}, {}", variant.name);
            if !is_name(&variant.name) {
                return Err(wrong(&way, "name", what(), Problem::Name(variant.name.clone())));
            }
            if !names.insert(variant.name.to_ascii_lowercase()) {
                return Err(wrong(&way, "name", what(), Problem::Twice));
            }
            if let Some(other) = numbers.insert(variant.value, &variant.name) {
                return Err(wrong(&way, "value", what(), Problem::TwoNames(other.clone())));
            }
        }
        let mut names: Vec<(String, u32)> =
            enumeration.variants.iter().map(|Variant { name, value, .. }| (name.clone(), *value)).collect();
        names.sort_by_key(|(_, value)| *value);
        let place = (map.values.len(), enumeration);
        if index.insert(enumeration.name.to_ascii_lowercase(), place).is_some() {
            return Err(wrong(&way, "name", what, Problem::Twice));
        }
        map.values.push(Values { name: enumeration.name.clone(), names });
    }
    Ok(index)
}

/// Checks every register by itself, and determines its shape.
fn shapes(sources: &Sources<'_>, enums: &EnumIndex<'_>, map: &mut RegisterMap) -> Result<(), Diagnostic> {
    let file = sources.file;
    let variants = |name: &str| match enums.get(&name.to_ascii_lowercase()) {
        Some((_, found)) => Ok(found.variants.as_slice()),
        None => {
            let known = file.enums.iter().map(|known| known.name.as_str());
            Err(nearest(name, known).first().map(|name| (*name).to_owned()))
        }
    };
    let number = |name: &Option<Box<str>>| {
        name.as_ref().and_then(|name| enums.get(&name.to_ascii_lowercase())).map(|(number, _)| *number)
    };
    // Many registers of a map have the same shape, in large maps most of them.
    let mut known: HashMap<Shape, usize> = HashMap::new();
    for (block_number, block) in file.blocks.iter().enumerate() {
        for (source, register) in sources.of(block_number).zip(&block.registers) {
            register.check(variants).map_err(|fault| {
                let mut way = sources.way(source);
                way.extend(fault.way);
                let field = fault.field.map_or_else(String::new, |field| format!(".{field}"));
                Diagnostic {
                    way,
                    what: format!("{}.{}{field}", block.name, register.name),
                    problem: fault.problem,
                }
            })?;
            let mut fields: Vec<MapField> = register
                .fields
                .iter()
                .map(|field| MapField {
                    name: field.name.to_string(),
                    bits: field.bits,
                    access: field.access.unwrap_or(register.access).kind(),
                    doc: field.doc.to_string(),
                    values: number(&field.values),
                })
                .collect();
            fields.sort_by_key(|field| field.bits.low());
            let next = known.len();
            let shape = *known.entry(Shape { fields, values: number(&register.values) }).or_insert(next);
            map.shape_of.push(narrow(shape));
        }
    }
    let mut shapes: Vec<(Shape, usize)> = known.into_iter().collect();
    shapes.sort_unstable_by_key(|(_, number)| *number);
    map.shapes = shapes.into_iter().map(|(shape, _)| shape).collect();
    Ok(())
}

/// Returns the number of an item of a file, which is too short for more than 2^32 of them.
fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Registers of each block: those of the block named by `like`, and its own.
pub(crate) fn effective(file: &File) -> Vec<Vec<&Register>> {
    let sources = Sources::new(file);
    let all = inherited(&sources).unwrap_or_default();
    all.iter().map(|own| own.iter().filter_map(|source| sources.get(*source as usize)).collect()).collect()
}

fn inherited(sources: &Sources<'_>) -> Result<Vec<Vec<u32>>, Diagnostic> {
    let file = sources.file;
    let mut numbers: HashMap<String, usize> = HashMap::new();
    for (number, block) in file.blocks.iter().enumerate() {
        let way = [key("blocks"), Step::Item(number)];
        let what = format!("block {}", block.name);
        if !is_name(&block.name) {
            return Err(wrong(&way, "name", what, Problem::Name(block.name.clone())));
        }
        if numbers.insert(block.name.to_ascii_lowercase(), number).is_some() {
            return Err(wrong(&way, "name", what, Problem::Twice));
        }
    }
    let mut all: Vec<Option<Vec<u32>>> = vec![None; file.blocks.len()];
    let mut total = 0;
    for first in 0..file.blocks.len() {
        // Up to a block without `like` or one that is done already, and down again.
        let mut chain: Vec<usize> = Vec::new();
        let mut at = Some(first);
        while let Some(number) = at.filter(|number| all.get(*number).is_some_and(Option::is_none)) {
            let Some(block) = file.blocks.get(number) else { break };
            let fail = |problem| {
                wrong(&[key("blocks"), Step::Item(number)], "like", format!("block {}", block.name), problem)
            };
            chain.push(number);
            let Some(like) = &block.like else { break };
            let Some(next) = numbers.get(&like.to_ascii_lowercase()).copied() else {
                let near = nearest(like, file.blocks.iter().map(|block| block.name.as_str()));
                let hint = near.first().map(|name| (*name).to_owned());
                return Err(fail(Problem::Unknown { kind: "block", name: like.clone(), hint }));
            };
            if let Some(begin) = chain.iter().position(|seen| *seen == next) {
                let circle = chain.iter().skip(begin).chain([&next]);
                let names =
                    circle.filter_map(|number| file.blocks.get(*number)).map(|block| block.name.as_str());
                return Err(fail(Problem::Cycle(names.collect::<Vec<_>>().join(" is like "))));
            }
            at = Some(next);
        }
        for number in chain.into_iter().rev() {
            let Some(block) = file.blocks.get(number) else { continue };
            let base = block.like.as_ref().and_then(|like| numbers.get(&like.to_ascii_lowercase()));
            let mut own = base.and_then(|base| all.get(*base)).cloned().flatten().unwrap_or_default();
            own.extend(sources.of(number).map(narrow));
            total += own.len();
            if total > MAX_REGISTERS {
                let way = [key("blocks"), Step::Item(number)];
                return Err(wrong(
                    &way,
                    "registers",
                    format!("block {}", block.name),
                    Problem::TooMany(MAX_REGISTERS),
                ));
            }
            if let Some(place) = all.get_mut(number) {
                *place = Some(own);
            }
        }
    }
    Ok(all.into_iter().map(Option::unwrap_or_default).collect())
}

/// Range of a block: first byte, first byte after it, number of the block.
type Span = (u64, u64, usize);

struct Layout<'a> {
    sources: &'a Sources<'a>,
    placed: Vec<MapRegister>,
    /// Ranges of the blocks with a size.
    spans: Vec<Span>,
}

impl Layout<'_> {
    /// `own` are the numbers of the block's registers.
    fn block(&mut self, number: usize, block: &Block, own: &[u32]) -> Result<(), Diagnostic> {
        let way = [key("blocks"), Step::Item(number)];
        let what = format!("block {}", block.name);
        let fail = |at: &str, problem| Err(wrong(&way, at, what.clone(), problem));
        for (at, value) in [("offset", Some(block.offset)), ("size", block.size)] {
            if let Some(value) = value.filter(|value| !value.is_multiple_of(WORD)) {
                return fail(at, Problem::Unaligned(value));
            }
        }
        let sources = self.sources;
        let registers = || own.iter().filter_map(|source| Some((*source, sources.get(*source as usize)?)));
        let wrong_register = |source: u32, register: &Register, at: &str, problem| {
            let what = format!("{}.{}", block.name, register.name);
            Err(wrong(&sources.way(source as usize), at, what, problem))
        };
        let names: Vec<&str> = registers().map(|(_, register)| &*register.name).collect();
        if let Err(second) = in_order(&names)
            && let Some((source, register)) = registers().nth(second)
        {
            return wrong_register(source, register, "name", Problem::Twice);
        }
        drop(names);
        if let Some(limit) = block.size
            && let Some((source, register)) = registers().find(|(_, register)| register.end() > limit)
        {
            let problem = Problem::Outside { end: register.end(), limit, of: "the size of its block" };
            return wrong_register(source, register, "offset", problem);
        }
        let used = registers().map(|(_, register)| register.end()).max().unwrap_or(0);
        let (count, least) = (block.count.unwrap_or(1), block.size.unwrap_or(used));
        let stride = block.stride.unwrap_or(least);
        if block.stride.is_some() && block.count.is_none() {
            return fail("stride", Problem::Stride);
        }
        if count == 0 || stride < least || !stride.is_multiple_of(WORD) {
            return fail(
                if count == 0 { "count" } else { "stride" },
                Problem::Array { count, stride, least },
            );
        }
        let end = u64::from(count - 1)
            .checked_mul(stride)
            .and_then(|before| before.checked_add(least))
            .and_then(|length| length.checked_add(block.offset))
            .unwrap_or(u64::MAX);
        if end > MAX_BAR_SIZE {
            let at = if block.count.is_some() { "count" } else { "offset" };
            return fail(at, Problem::Outside { end, limit: MAX_BAR_SIZE, of: "the maximum size of a BAR" });
        }
        if least > 0 && block.size.is_some() {
            self.spans.push((block.offset, end, number));
        }
        let words = registers()
            .map(|(_, register)| u64::from(register.elements()) * (register.element_size() / WORD));
        let words = words.sum::<u64>().saturating_mul(count.into());
        if words > (MAX_REGISTERS - self.placed.len().min(MAX_REGISTERS)) as u64 {
            return fail(
                if block.count.is_some() { "count" } else { "registers" },
                Problem::TooMany(MAX_REGISTERS),
            );
        }
        self.placed.reserve_exact(usize::try_from(words).unwrap_or_default());
        for element in 0..count {
            let prefix =
                if block.count.is_some() { format!("{}[{element}]", block.name) } else { block.name.clone() };
            let base = block.offset + u64::from(element) * stride;
            for (source, register) in registers() {
                self.register(&prefix, base, source, register);
            }
        }
        Ok(())
    }

    /// Adds every word of a register; `base` is the address of the block.
    fn register(&mut self, prefix: &str, base: u64, source: u32, register: &Register) {
        let mut place = |name: String, address: u64, reset: Option<u64>| {
            let reset = reset.and_then(|value| u32::try_from(value & u64::from(u32::MAX)).ok());
            let access = register.access.kind();
            self.placed.push(MapRegister { name, address: BarOffset::new(address), access, reset, source });
        };
        for element in 0..register.elements() {
            let at = base + u64::from(register.offset) + u64::from(element) * register.element_stride();
            let name = match register.count {
                Some(_) => format!("{prefix}.{}[{element}]", register.name),
                None => format!("{prefix}.{}", register.name),
            };
            if register.width == 64 {
                place(format!("{name}_low"), at, register.reset);
                place(format!("{name}_high"), at + WORD, register.reset.map(|value| value >> 32));
            } else {
                place(name, at, register.reset);
            }
        }
    }

    fn finish(mut self, map: &mut RegisterMap) -> Result<(), Diagnostic> {
        self.spans.sort_unstable();
        for pair in self.spans.windows(2) {
            let [first, second] = pair else { continue };
            if second.0 < first.1 {
                let name = |number: usize| {
                    self.sources.file.blocks.get(number).map_or("", |block| block.name.as_str())
                };
                let problem = Problem::BlockOverlap { other: name(first.2).to_owned(), at: second.0 };
                let way = [key("blocks"), Step::Item(second.2)];
                return Err(wrong(&way, "offset", format!("block {}", name(second.2)), problem));
            }
        }
        // Stable: registers at the same address are reported in the order of the file. Most files are in the order of addresses.
        if !self.placed.is_sorted_by_key(|register| register.address) {
            self.placed.sort_by_key(|register| register.address);
        }
        for group in self.placed.chunk_by(|a, b| a.address == b.address) {
            for (number, second) in group.iter().enumerate().skip(1) {
                let own = second.access;
                let shares = |other: &&MapRegister| {
                    let other = other.access;
                    own.is_readable() && other.is_readable() || own.is_writable() && other.is_writable()
                };
                if let Some(other) = group.get(..number).unwrap_or_default().iter().find(shares) {
                    let problem = Problem::Overlap { other: other.name.clone(), at: second.address.get() };
                    let way = self.sources.way(second.source as usize);
                    return Err(wrong(&way, "offset", second.name.clone(), problem));
                }
            }
        }
        let names: Vec<&str> = self.placed.iter().map(|register| register.name.as_str()).collect();
        map.by_name = match in_order(&names) {
            Ok(by_name) => by_name,
            Err(second) => {
                // One word of a 64-bit pair has the name of another register.
                let Some(second) = self.placed.get(second) else { return Ok(()) };
                let way = self.sources.way(second.source as usize);
                return Err(wrong(&way, "name", second.name.clone(), Problem::Twice));
            }
        };
        map.registers = self.placed;
        Ok(())
    }
}
