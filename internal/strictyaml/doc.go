// Package strictyaml decodes the YAML that people write for federator (bindings,
// fixtures) into Go values by their json tags, and says where in the file each thing
// is that does not fit: unknown and repeated keys, wrong types, values that JSON
// does not have. It accepts one document without aliases, anchors or merges.
//
// # Concurrency
//
// Decode has no state.
//
// # Trade-offs
//
// Only the types that configuration is made of are decoded: structs, pointers,
// slices, maps with strings as keys, strings, booleans, time.Time and any, which
// becomes what encoding/json makes of it with numbers as json.Number. Types of
// Kubernetes, which decode themselves, are read by sigs.k8s.io/yaml's strict mode:
// it decodes JSON that it made of the YAML, so its errors of unknown keys and wrong
// types have no line, and only the first is reported.
package strictyaml
