package decode

import (
	"fmt"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Identity is what tells one version of one object from all others.
type Identity struct{ Namespace, Name, UID, ResourceVersion string }

var partialList = schema.GroupVersionKind{Group: metav1.GroupName, Version: "v1", Kind: "PartialObjectMetadataList"}

// Identities reads what is in a list of metadata (PartialObjectMetadataList) or, in JSON, of any
// objects. It calls each before the rest has been validated: on an error the caller must discard
// them. The strings are valid until each returns, whose error ends the list and is returned
// unchanged.
func Identities(body []byte, enc Encoding, each func(Identity) error) (ListMeta, error) {
	if enc == Protobuf {
		return protobufIdentities(body, each)
	}
	// An item is read at a time: read as one, small items live as many times what was read and charged.
	l := &listReader{t: &canonicalizer{}, body: body}
	var m metav1.ListMeta
	err := l.list(&m, func() error {
		raw, err := l.extent()
		if err != nil {
			return err
		}
		var item struct {
			Metadata struct {
				Namespace       string `json:"namespace"`
				Name            string `json:"name"`
				UID             string `json:"uid"`
				ResourceVersion string `json:"resourceVersion"`
			} `json:"metadata"`
		}
		if err := utiljson.Unmarshal(raw, &item); err != nil {
			return fmt.Errorf("%w: list of metadata: %w", ErrMalformed, err)
		}
		return each(Identity(item.Metadata))
	})
	if err != nil {
		return ListMeta{}, err
	}
	return ListMeta{m.ResourceVersion, m.Continue, m.RemainingItemCount}, nil
}

func protobufIdentities(body []byte, each func(Identity) error) (ListMeta, error) {
	raw, err := openEnvelope(body, partialList)
	if err != nil {
		return ListMeta{}, err
	}
	var m metav1.ListMeta
	for len(raw) > 0 {
		num, wire, content, rest, ok := nextField(raw)
		switch {
		case !ok || num == 0 || (num == 1 || num == 2) && wire != wireBytes:
			return ListMeta{}, fmt.Errorf("%w: list of metadata %d bytes before its end", ErrMalformed, len(raw))
		case num == 1:
			if err := unmarshalListMeta(&m, content); err != nil {
				return ListMeta{}, err
			}
		case num == 2:
			id, ok := identityOf(content)
			if !ok {
				return ListMeta{}, fmt.Errorf("%w: metadata of %d bytes", ErrMalformed, len(content))
			}
			if err := each(id); err != nil {
				return ListMeta{}, err
			}
		}
		raw = rest
	}
	return ListMeta{m.ResourceVersion, m.Continue, m.RemainingItemCount}, nil
}

// Fields of ObjectMeta in protobuf.
const (
	metaName            = 1
	metaNamespace       = 3
	metaUID             = 5
	metaResourceVersion = 6
)

// identityOf reads a PartialObjectMetadata, whose field 1 is its ObjectMeta. Of a field that is
// repeated the last counts, and messages are merged, as generated code does.
func identityOf(partial []byte) (id Identity, ok bool) {
	for len(partial) > 0 {
		num, wire, meta, rest, ok := nextField(partial)
		if !ok || num == 0 || num == 1 && (wire != wireBytes || !id.merge(meta)) {
			return Identity{}, false
		}
		partial = rest
	}
	return id, true
}

// merge reads an ObjectMeta. The strings alias it.
func (id *Identity) merge(meta []byte) (ok bool) {
	for len(meta) > 0 {
		num, wire, content, rest, ok := nextField(meta)
		if !ok || num == 0 {
			return false
		}
		var field *string
		switch num {
		case metaName:
			field = &id.Name
		case metaNamespace:
			field = &id.Namespace
		case metaUID:
			field = &id.UID
		case metaResourceVersion:
			field = &id.ResourceVersion
		}
		if field != nil {
			if wire != wireBytes {
				return false
			}
			*field = unsafe.String(unsafe.SliceData(content), len(content))
		}
		meta = rest
	}
	return true
}
