//! Linker options of the provider.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // libfabric unloads providers when a process ends, while the thread of automatic progress may still run.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
