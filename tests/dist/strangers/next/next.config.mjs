export default { output: "standalone", serverExternalPackages: ["redlock-rs"] };
