package plans

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
)

// RemedyDigest returns the digest of how an object would be changed: what is sent to its member
// besides the object's identity and the preconditions. It does not depend on the version of the
// object, nor on what a remedy that was made from the whole object carries of it without effect.
// The apiVersion is the one that is written.
func RemedyDigest(r *policy.Remedy, apiVersion string, force bool, actAs string) v1alpha1.Digest {
	change := "" // A delete has none.
	switch r.Action {
	case "apply":
		change = canonical(r.Object, func(m map[string]any) {
			delete(m, "apiVersion")
			delete(m, "kind")
			delete(m, "status")
			dropIdentity(m, "name", "namespace", "uid", "resourceVersion", "managedFields", "creationTimestamp", "generation")
		})
	case "patch":
		change = canonical(r.Patch, func(m map[string]any) { dropIdentity(m, "uid", "resourceVersion") })
	}
	var b []byte
	for _, f := range []string{"remedy", r.Action, apiVersion, strconv.FormatBool(force), actAs, r.Propagation, change} {
		b = appendField(b, f)
	}
	sum := sha256.Sum256(b)
	return v1alpha1.Digest(hex.EncodeToString(sum[:]))
}

// dropIdentity removes fields of the metadata, and the annotation that every write replaces.
func dropIdentity(m map[string]any, fields ...string) {
	meta, ok := m["metadata"].(map[string]any)
	if !ok {
		return
	}
	for _, field := range fields {
		delete(meta, field)
	}
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		if delete(annotations, api.ActionKey); len(annotations) == 0 {
			delete(meta, "annotations") // the write has them anyway
		}
	}
	if len(meta) == 0 {
		delete(m, "metadata")
	}
}

// canonical returns JSON without space and with sorted fields, after an edit if it is an object
// and without tests of the object's version if it is a list. What is not JSON stays as it is.
func canonical(text []byte, edit func(map[string]any)) string {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // numbers stay as they are written
	var value any
	err := d.Decode(&value)
	if err == nil {
		if _, err = d.Token(); err == nil {
			err = errors.New("more than one value")
		}
	}
	if !errors.Is(err, io.EOF) || value == nil {
		return "text " + string(text)
	}
	switch v := value.(type) {
	case map[string]any:
		edit(v)
	case []any:
		value = withoutVersionTests(v)
	}
	out, err := json.Marshal(value)
	if err != nil {
		return "text " + string(text)
	}
	return "json " + string(out)
}

// withoutVersionTests returns the operations of a JSON patch without those that only test which
// version of the object it is for.
func withoutVersionTests(ops []any) []any {
	out := make([]any, 0, len(ops))
	for _, o := range ops {
		op, _ := o.(map[string]any)
		path := op["path"]
		if op["op"] == "test" && (path == "/metadata/resourceVersion" || path == "/metadata/uid") {
			continue
		}
		out = append(out, o)
	}
	return out
}
