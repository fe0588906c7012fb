//! Registers of a design by name, as a register map describes them. The names become attributes in `fpga_rdma/registers.py`.

use std::path::PathBuf;
use std::sync::Arc;

use fpga_driver::Bar;
use fpga_driver::errors::MmioError;
use fpga_register_map::{AccessError, MapError, NameError, Named, RegisterMap, Registers};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::card::Card;
use crate::card_state::CardState;
use crate::error::{Class, Classify, Failure};
use crate::export::name_of;
use crate::numbers;
use crate::record::{fields, named_record};
use crate::wait;

/// A register map for the registers of a card.
#[pyclass(frozen, module = "fpga_rdma")]
pub(crate) struct Map {
    card: CardState,
    map: Arc<RegisterMap>,
}

impl Map {
    fn refused(&self, error: &NameError) -> Failure {
        let class = match error {
            NameError::Unknown { .. } => Class::NoRegisterError,
            NameError::Access { .. } => Class::UnsupportedError,
            _ => Class::RangeError,
        };
        Failure::new(class, error.to_string()).on_card(self.card.name())
    }

    fn find(&self, name: &str) -> Result<Named<'_>, Failure> {
        self.map.find(name).map_err(|error| self.refused(&error))
    }

    fn access<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Registers<'_, Bar>) -> Result<T, AccessError<MmioError>> + Send,
    ) -> Result<T, Failure> {
        let card = self.card.get()?;
        let bar = card.user_bar().ok_or_else(|| {
            Failure::new(Class::UnsupportedError, "the card has no user BAR").on_card(card.name())
        })?;
        // A card in another process needs time to answer.
        wait::detached(py, || {
            call(&Registers::new(&self.map, bar)).map_err(|error| match &error {
                AccessError::Name(error) => self.refused(error),
                AccessError::Io { source, .. } => {
                    Failure::new(source.class(), error.to_string()).on_card(card.name())
                }
            })
        })
    }
}

/// Returns the rest of `name` behind `prefix`, such as `.gain` of `dma[0].gain` behind `dma[0]`. `None` for other names.
fn rest_behind<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    if prefix.is_empty() {
        return Some(name);
    }
    let (before, rest) = name.split_at_checked(prefix.len())?;
    (before.eq_ignore_ascii_case(prefix) && rest.starts_with(['.', '['])).then_some(rest)
}

/// First part of such a rest: `gain` of `.gain[3].x`, `[3]` of `[3].x`.
fn first_part(rest: &str) -> &str {
    let rest = rest.strip_prefix('.').unwrap_or(rest);
    let end = match rest.strip_prefix('[') {
        Some(_) => rest.find(']').map(|at| at + 1),
        None => rest.find(['.', '[']),
    };
    end.and_then(|end| rest.get(..end)).unwrap_or(rest)
}

#[pymethods]
impl Map {
    #[getter]
    fn name(&self) -> &str {
        self.map.name()
    }

    #[getter]
    fn doc(&self) -> &str {
        self.map.doc()
    }

    #[getter]
    fn card(&self) -> &str {
        self.card.name()
    }

    /// Names of all registers, in the order of their offsets.
    fn names(&self) -> Vec<&str> {
        self.map.registers().iter().map(|register| register.name.as_str()).collect()
    }

    /// Kind of a name: `register`, `field`, or `group` for blocks and arrays.
    fn kind(&self, name: &str) -> Result<&'static str, Failure> {
        match self.map.find(name) {
            Ok(Named { field: Some(_), .. }) => Ok("field"),
            Ok(_) => Ok("register"),
            Err(error) => {
                let is_group =
                    self.map.registers().iter().any(|register| rest_behind(&register.name, name).is_some());
                if is_group { Ok("group") } else { Err(self.refused(&error)) }
            }
        }
    }

    /// Names directly below a group or register: `gain`, or `[0]` for elements of an array.
    fn children(&self, name: &str) -> Vec<String> {
        let mut children: Vec<String> = Vec::new();
        if let Ok(Named { register, field: None }) = self.map.find(name) {
            return self.map.fields(register).iter().map(|field| field.name.clone()).collect();
        }
        for rest in self.map.registers().iter().filter_map(|register| rest_behind(&register.name, name)) {
            let child = first_part(rest);
            // Registers are in the order of their offsets, so those of one child are usually neighbours.
            if children.last().is_none_or(|last| last != child)
                && !children.iter().any(|known| known == child)
            {
                children.push(child.to_owned());
            }
        }
        children
    }

    fn read(&self, py: Python<'_>, name: &str) -> Result<u32, Failure> {
        self.access(py, |registers| registers.read(name))
    }

    fn take(&self, py: Python<'_>, name: &str) -> Result<u32, Failure> {
        self.access(py, |registers| registers.take(name))
    }

    /// Writes a number, or the name of a value.
    fn write(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> Result<(), Failure> {
        if let Ok(text) = value.extract::<String>() {
            return self.access(py, |registers| registers.set(name, &text));
        }
        match value.extract::<u32>() {
            Ok(number) => self.access(py, |registers| registers.write(name, number)),
            Err(error) if error.is_instance_of::<PyOverflowError>(py) => {
                let named = self.find(name)?;
                let (number, max) = (numbers::digits(value), named.bits().max_value());
                let message = format!("{named}: {number} does not fit: give 0 to {max:#x}");
                Err(Failure::new(Class::RangeError, message).on_card(self.card.name()))
            }
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {
                let named = self.find(name)?;
                let text = format!(
                    "{named}: a value of type {}: give an integer, or the name of a value",
                    name_of(value)
                );
                Err(PyTypeError::new_err(text).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Name of a value; `None` if it has none.
    fn label(
        &self,
        name: &str,
        #[pyo3(from_py_with = numbers::value)] value: u32,
    ) -> Result<Option<&str>, Failure> {
        let named = self.find(name)?;
        Ok(self.map.values(named).and_then(|values| values.name_of(value)))
    }

    fn describe<'py>(&self, py: Python<'py>, name: &str) -> Result<Bound<'py, PyAny>, Failure> {
        let named = self.find(name)?;
        let doc = named.field.map_or_else(|| self.map.doc_of(named.register), |field| field.doc.as_str());
        let values = PyDict::new(py);
        for (label, number) in
            self.map.values(named).map(|values| values.names.as_slice()).unwrap_or_default()
        {
            values.set_item(label, number)?;
        }
        let fields = fields!(py,
            name: named.to_string(),
            offset: named.register.address.get(),
            low_bit: named.bits().mask().trailing_zeros(),
            width: named.bits().width(),
            access: named.access().abbreviation(),
            reset: named.register.reset.map(|reset| named.bits().extract(reset)),
            doc: doc,
            values: values,
        );
        named_record("info", "RegisterInfo", &fields)
    }
}

fn invalid(error: &MapError) -> Failure {
    Failure::new(Class::MapError, error.to_string())
}

/// Makes the object whose attributes are the registers.
fn registers<'py>(
    py: Python<'py>,
    card: &CardState,
    map: Arc<RegisterMap>,
) -> Result<Bound<'py, PyAny>, Failure> {
    let map = Map { card: card.clone(), map };
    Ok(py.import("fpga_rdma.registers")?.getattr("Registers")?.call1((map,))?)
}

#[pymethods]
impl Card {
    fn load_map<'py>(&self, py: Python<'py>, path: PathBuf) -> Result<Bound<'py, PyAny>, Failure> {
        let map = wait::detached(py, || RegisterMap::load(&path).map_err(|error| invalid(&error)))?;
        let map = Arc::new(map);
        self.state().set_map(Arc::clone(&map));
        registers(py, self.state(), map)
    }

    #[pyo3(signature = (text, name = "map"))]
    fn parse_map<'py>(&self, py: Python<'py>, text: &str, name: &str) -> Result<Bound<'py, PyAny>, Failure> {
        let map = Arc::new(RegisterMap::parse(name.as_ref(), text).map_err(|error| invalid(&error))?);
        self.state().set_map(Arc::clone(&map));
        registers(py, self.state(), map)
    }

    #[getter]
    fn regs<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Failure> {
        let map = self.state().map().ok_or_else(|| {
            Failure::new(Class::UnsupportedError, "no register map is loaded")
                .advice("describe your design's registers in a file, and call card.load_map(path)")
                .on_card(self.state().name())
        })?;
        registers(py, self.state(), map)
    }
}
