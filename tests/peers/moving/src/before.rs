include!(concat!(env!("PROGRAMS"), "/before.rs"));
