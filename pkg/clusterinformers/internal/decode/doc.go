// Package decode decodes responses of API servers into records of the index: metadata, and a
// body in canonical JSON.
//
// The body is by definition the result of the standard path: decode (protobuf into the typed
// struct, whose managedFields are cut and which is marshalled as JSON), decode that JSON
// into a map with apimachinery's integers, set apiVersion and kind if absent, remove
// metadata.managedFields, apply the [Rules], and encode with sorted keys and without HTML
// escapes. That path exists (standard.go), and a [Decoder] uses it for anything that it does
// not handle itself: repeated singular fields, invalid UTF-8, odd wire types, escaped or
// repeated keys, deep nesting. [Decoder.Fallbacks] counts those.
//
// Everything else is transcoded without building an object. For protobuf a program is
// compiled once per Go type from its tags: a message is scanned for the spans of its fields,
// which are then written in the order of their JSON keys. For JSON spans are copied in one
// pass, and members are moved only if keys are out of order. Metadata is read from the
// canonical result, so that both encodings share that code.
//
// A Decoder and its Events belong to one goroutine; programs are shared.
// Records alias the decoder's buffers until its next call. Memory is bounded
// by a constant times the input, and hostile input is an error, not a panic.
package decode
