//! Tools and tool calls that the template does not render: the model never sees them.

use super::{Check, Kind, Severity};
use crate::data::inspect::row::Row;

pub const KIND: Kind = Kind {
    id: "left_out",
    title: "Tools dropped by the template",
    severity: Severity::Problem,
    cleans: false,
    cause: "the chat template does not render tools or tool calls: the model learns answers to calls it never made",
    fix: "choose a template that writes tools, e.g. qwen or mistral (data.template, --template)",
    make: |_| Some(Box::new(LeftOut)),
};

struct LeftOut;

impl Check for LeftOut {
    fn row(&mut self, row: &Row) -> Option<String> {
        row.left_out.as_ref().map(|name| format!("`{name}` is not rendered"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, testing};

    #[test]
    fn what_is_not_written_is_named() {
        let mut check = testing::make("left_out", Setup::default());
        let mut row = testing::text("a");
        assert_eq!(check.row(&row), None);
        row.left_out = Some("get_weather".into());
        assert_eq!(check.row(&row).unwrap(), "`get_weather` is not rendered");
    }
}
