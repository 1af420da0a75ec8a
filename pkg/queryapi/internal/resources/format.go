package resources

import (
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// shape is what is made of objects.
type shape uint8

const (
	fullObject shape = iota
	metadataOnly
	table
)

// format is how an answer is written.
type format struct {
	shape    shape
	yaml     bool
	protobuf bool
}

// negotiate returns what the client takes and can be given, by quality and then as
// written. A list and a single object are asked for in the same words but for the
// List of metadata.
func negotiate(r *http.Request) ([]format, error) {
	type offer struct {
		format
		quality float64
	}
	header := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(header) == "" {
		return []format{{}}, nil
	}
	var offers []offer
	for _, clause := range strings.Split(header, ",") {
		media, params, err := mime.ParseMediaType(clause)
		if err != nil {
			continue // what is not understood is not taken
		}
		o := offer{quality: 1}
		if q := params["q"]; q != "" {
			if o.quality, err = strconv.ParseFloat(q, 64); err != nil {
				continue
			}
		}
		switch media {
		case "application/json", "*/*", "application/*":
		case "application/yaml":
			o.yaml = true
		case protobufType:
			o.protobuf = true
		default:
			continue
		}
		as, ok := shapeOf(params)
		if !ok || o.quality <= 0 {
			continue
		}
		o.shape = as
		offers = append(offers, o)
	}
	if len(offers) == 0 {
		return nil, errNotAcceptable
	}
	slices.SortStableFunc(offers, func(a, b offer) int {
		switch {
		case a.quality > b.quality:
			return -1
		case a.quality < b.quality:
			return 1
		}
		return 0
	})
	formats := make([]format, len(offers))
	for i, o := range offers {
		formats[i] = o.format
	}
	return formats, nil
}

var errNotAcceptable = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
	Message: "only application/json and application/yaml are given here, and " + protobufType + " of Kubernetes' own kinds, also as=PartialObjectMetadata[List] of meta.k8s.io/v1, and all but the last as=Table",
}}

// chooseFormat takes the first format that the resource can be had in, and the first that
// is not protobuf for where that will not do.
func (q *request) chooseFormat(formats []format) error {
	chosen := false
	for _, f := range formats {
		if f.protobuf && (f.shape == table || f.shape == fullObject && !q.resource.Protobuf() || wsstream.IsWebSocketRequest(q.r)) {
			continue
		}
		if !chosen {
			q.format, chosen = f, true
		}
		if !f.protobuf {
			q.fallback = &f
			break
		}
	}
	if !chosen {
		return errNotAcceptable
	}
	return nil
}

func shapeOf(params map[string]string) (shape, bool) {
	as := params["as"]
	if as == "" {
		return fullObject, true
	}
	if params["g"] != "meta.k8s.io" || params["v"] != "v1" {
		return fullObject, false
	}
	switch as {
	case "Table":
		return table, true
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return metadataOnly, true
	}
	return fullObject, false
}

func (f format) contentType() string {
	if f.protobuf {
		return protobufType
	}
	if f.yaml {
		return "application/yaml"
	}
	return "application/json"
}

// appendString appends a JSON string.
func appendString(dst []byte, s string) []byte {
	out, err := json.Marshal(s)
	if err != nil {
		panic("resources: cannot encode a string: " + err.Error())
	}
	return append(dst, out...)
}
