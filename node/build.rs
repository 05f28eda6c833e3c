//! Tells the linker what an addon of Node needs.

fn main() {
    napi_build::setup();
    // napi-derive writes the types of the addon there, and does not make the folder.
    if let Some(folder) = std::env::var_os("NAPI_TYPE_DEF_TMP_FOLDER") {
        std::fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    }
}
