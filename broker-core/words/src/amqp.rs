//! The only codec of AMQP 1.0 values (AMQP 1.6), for the content of messages and for the frames of
//! the AMQP transport.
//!
//! The writer uses the smallest encoding of every value, so that equal values have equal bytes. The
//! reader accepts untrusted bytes: the enclosing value bounds every length, nesting is limited, and
//! memory is never allocated for a claimed length. Not here: the meaning of sections, which
//! [`message`](crate::message) has, and frames and links, which the transport has.

mod check;
mod read;
pub mod write;

pub use self::check::{ItemBounds, check_value, check_value_of};
pub use self::read::{Reader, Scalar, Width, width};

/// Reason why bytes are not an AMQP value or not the content of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ContentError {
    /// The message has no section.
    #[error("message without any section")]
    Empty,
    /// The position of a section would not fit 32 bits.
    #[error("message of 4 GiB or more")]
    TooLarge,
    /// A length exceeds the enclosing value.
    #[error("message ends inside a value")]
    Truncated,
    /// A count does not match the items.
    #[error("count and size of a list, map or array disagree")]
    BadCount,
    /// The constructor is unknown.
    #[error("unknown AMQP type 0x{0:02x}")]
    UnknownType(u8),
    /// Text is not UTF-8.
    #[error("text is not UTF-8")]
    NotUtf8,
    /// A field does not have the type that AMQP gives it.
    #[error("{0} has the wrong type")]
    BadValue(&'static str),
    /// Values are nested too deeply.
    #[error("values are nested too deeply")]
    TooDeep,
    /// A list, map or array has too many items (AMQP-14).
    #[error(
        "a list or array has more than 65536 items, or a map more than 32768 entries; send fewer in one"
    )]
    TooMany,
    /// Arrays whose elements take no bytes, such as nulls, have too many elements (AMQP-14).
    #[error(
        "arrays of elements without bytes, such as nulls, have more than 65536 elements in all; send fewer"
    )]
    TooManyWidthless,
    /// A value that is no section is in the place of a section.
    #[error("value is not a section of a message")]
    NoSection,
    /// A section is repeated, or a body has sections of several kinds.
    #[error("a section is repeated, or the body has sections of several kinds")]
    SectionOrder,
    /// An application property has a type that the message model lacks (MSG-20, MSG-21).
    #[error("application property has an unsupported type")]
    UnsupportedValue,
    /// An application property has a key that is not text (MSG-22).
    #[error("key of an application property is not text")]
    BadKey,
}

/// Descriptors of the sections (AMQP 3.2).
pub mod descriptor {
    /// The header.
    pub const HEADER: u8 = 0x70;
    /// Annotations for one hop.
    pub const DELIVERY_ANNOTATIONS: u8 = 0x71;
    /// Annotations of the message.
    pub const MESSAGE_ANNOTATIONS: u8 = 0x72;
    /// The properties.
    pub const PROPERTIES: u8 = 0x73;
    /// The application properties.
    pub const APPLICATION_PROPERTIES: u8 = 0x74;
    /// A body of bytes, or a part.
    pub const DATA: u8 = 0x75;
    /// A body of a list, or a part.
    pub const SEQUENCE: u8 = 0x76;
    /// A body of a single value.
    pub const VALUE: u8 = 0x77;
    /// The footer.
    pub const FOOTER: u8 = 0x78;
}

/// Constructors of the encodings (AMQP 1.6).
pub mod code {
    /// A descriptor and a value follow.
    pub const DESCRIBED: u8 = 0x00;
    /// Constructor of null.
    pub const NULL: u8 = 0x40;
    /// Constructor of true.
    pub const TRUE: u8 = 0x41;
    /// Constructor of false.
    pub const FALSE: u8 = 0x42;
    /// Constructor of uint0.
    pub const UINT0: u8 = 0x43;
    /// Constructor of ulong0.
    pub const ULONG0: u8 = 0x44;
    /// Constructor of list0.
    pub const LIST0: u8 = 0x45;
    /// Constructor of ubyte.
    pub const UBYTE: u8 = 0x50;
    /// Constructor of byte.
    pub const BYTE: u8 = 0x51;
    /// Constructor of small uint.
    pub const SMALL_UINT: u8 = 0x52;
    /// Constructor of small ulong.
    pub const SMALL_ULONG: u8 = 0x53;
    /// Constructor of small int.
    pub const SMALL_INT: u8 = 0x54;
    /// Constructor of small long.
    pub const SMALL_LONG: u8 = 0x55;
    /// Constructor of boolean.
    pub const BOOLEAN: u8 = 0x56;
    /// Constructor of ushort.
    pub const USHORT: u8 = 0x60;
    /// Constructor of short.
    pub const SHORT: u8 = 0x61;
    /// Constructor of uint.
    pub const UINT: u8 = 0x70;
    /// Constructor of int.
    pub const INT: u8 = 0x71;
    /// Constructor of float.
    pub const FLOAT: u8 = 0x72;
    /// Constructor of char.
    pub const CHAR: u8 = 0x73;
    /// Constructor of decimal32.
    pub const DECIMAL32: u8 = 0x74;
    /// Constructor of ulong.
    pub const ULONG: u8 = 0x80;
    /// Constructor of long.
    pub const LONG: u8 = 0x81;
    /// Constructor of double.
    pub const DOUBLE: u8 = 0x82;
    /// Constructor of timestamp.
    pub const TIMESTAMP: u8 = 0x83;
    /// Constructor of decimal64.
    pub const DECIMAL64: u8 = 0x84;
    /// Constructor of decimal128.
    pub const DECIMAL128: u8 = 0x94;
    /// Constructor of uuid.
    pub const UUID: u8 = 0x98;
    /// Constructor of binary8.
    pub const BINARY8: u8 = 0xa0;
    /// Constructor of string8.
    pub const STRING8: u8 = 0xa1;
    /// Constructor of symbol8.
    pub const SYMBOL8: u8 = 0xa3;
    /// Constructor of binary32.
    pub const BINARY32: u8 = 0xb0;
    /// Constructor of string32.
    pub const STRING32: u8 = 0xb1;
    /// Constructor of symbol32.
    pub const SYMBOL32: u8 = 0xb3;
    /// Constructor of list8.
    pub const LIST8: u8 = 0xc0;
    /// Constructor of map8.
    pub const MAP8: u8 = 0xc1;
    /// Constructor of list32.
    pub const LIST32: u8 = 0xd0;
    /// Constructor of map32.
    pub const MAP32: u8 = 0xd1;
    /// Constructor of array8.
    pub const ARRAY8: u8 = 0xe0;
    /// Constructor of array32.
    pub const ARRAY32: u8 = 0xf0;
}
