include!(concat!(env!("PROGRAMS"), "/after.rs"));
