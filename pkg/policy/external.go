package policy

import "federator.dev/federator/pkg/policy/internal/external"

// MaxExternalBytes bounds one external document, in bytes of JSON.
const MaxExternalBytes = external.MaxBytes

// Documents from outside the fleet: data.fleet.external.
type (
	// External are the external documents of all sources at one time, immutable. nil are those of which nothing is known yet.
	External = external.Documents
	// ExternalDocument is one of them.
	ExternalDocument = external.Document
	// ExternalSchema is a JSON schema of external documents.
	ExternalSchema = external.Schema
	// ExternalError is a text that is no document, at a line and column.
	ExternalError = external.Error
)

// NoExternal returns the external documents of no source.
func NoExternal() *External { return external.None() }

// NewExternal returns external documents, by source and key. Its error is of a content that is not as DecodeExternal returns it.
func NewExternal(of map[string]map[string]ExternalDocument) (*External, error) {
	return external.New(of)
}

// DecodeExternal returns the external document that a hostile text is, as canonical JSON. The text is JSON, or YAML where that is
// allowed. maxBytes 0 is MaxExternalBytes; schema may be nil. Errors are ExternalErrors.
func DecodeExternal(text []byte, yaml bool, maxBytes int, schema *ExternalSchema) ([]byte, error) {
	return external.Decode(text, yaml, maxBytes, schema)
}

// ParseExternalSchema returns the JSON schema that a text is; nil for an empty one.
func ParseExternalSchema(text []byte) (*ExternalSchema, error) { return external.ParseSchema(text) }
