//! Floats that may be non-finite: plain JSON would turn them into null, and a NaN loss is the event that matters most.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An f64 that survives JSON: non-finite values are serialized as "NaN", "inf" and "-inf".
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Num(pub f64);

impl From<f64> for Num {
    fn from(x: f64) -> Self {
        Num(x)
    }
}

impl From<Num> for f64 {
    fn from(x: Num) -> Self {
        x.0
    }
}

impl Serialize for Num {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            x if x.is_finite() => serializer.serialize_f64(x),
            x if x.is_nan() => serializer.serialize_str("NaN"),
            x if x > 0.0 => serializer.serialize_str("inf"),
            _ => serializer.serialize_str("-inf"),
        }
    }
}

impl<'de> Deserialize<'de> for Num {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Num;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a number, \"NaN\", \"inf\" or \"-inf\"")
            }
            fn visit_f64<E: de::Error>(self, x: f64) -> Result<Num, E> {
                Ok(Num(x))
            }
            fn visit_u64<E: de::Error>(self, x: u64) -> Result<Num, E> {
                Ok(Num(x as f64))
            }
            fn visit_i64<E: de::Error>(self, x: i64) -> Result<Num, E> {
                Ok(Num(x as f64))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Num, E> {
                match text {
                    "NaN" => Ok(Num(f64::NAN)),
                    "inf" => Ok(Num(f64::INFINITY)),
                    "-inf" => Ok(Num(f64::NEG_INFINITY)),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
