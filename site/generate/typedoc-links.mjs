// Resolves links of doc comments to what another entry point exports: TypeDoc itself looks only where the comment stands.

/** @param {import("typedoc").Application} app */
export function load(app) {
  app.converter.addUnknownSymbolResolver((reference, from) => {
    const path = reference.symbolReference?.path ?? [];
    const names = path.map((part) => part.path);
    if (names.length === 0) return undefined;
    const entry = from.project.children?.find((child) => child.name === "index");
    const target = entry?.getChildByName(names);
    return target && { target, caption: names.join(".") };
  });
}
