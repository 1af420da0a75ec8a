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

	"federator.dev/federator/internal/rows"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// shape is the form in which objects are sent.
type shape uint8

const (
	fullObject shape = iota
	metadataOnly
	table
	asRows // package rows: lists only
)

// format is how a response is encoded.
type format struct {
	shape    shape
	yaml     bool
	protobuf bool
}

// negotiate returns the acceptable formats of the Accept header, by quality, then in order.
// A list and a single object are requested in the same way, except for the List of metadata.
func negotiate(r *http.Request) ([]format, error) {
	type acceptClause struct {
		format
		quality float64
	}
	header := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(header) == "" {
		return []format{{}}, nil
	}
	var accepted []acceptClause
	for _, clause := range strings.Split(header, ",") {
		media, params, err := mime.ParseMediaType(clause)
		if err != nil {
			continue // a clause that cannot be parsed is ignored
		}
		c := acceptClause{quality: 1}
		if q := params["q"]; q != "" {
			if c.quality, err = strconv.ParseFloat(q, 64); err != nil {
				continue
			}
		}
		switch media {
		case "application/json", "*/*", "application/*":
		case "application/yaml":
			c.yaml = true
		case protobufType:
			c.protobuf = true
		case rows.MediaType:
		default:
			continue
		}
		as, ok := shapeOf(media, params)
		if !ok || c.quality <= 0 {
			continue
		}
		c.shape = as
		accepted = append(accepted, c)
	}
	if len(accepted) == 0 {
		return nil, errNotAcceptable
	}
	slices.SortStableFunc(accepted, func(a, b acceptClause) int {
		switch {
		case a.quality > b.quality:
			return -1
		case a.quality < b.quality:
			return 1
		}
		return 0
	})
	formats := make([]format, len(accepted))
	for i, c := range accepted {
		formats[i] = c.format
	}
	return formats, nil
}

var errNotAcceptable = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
	Message: "supported: application/json and application/yaml, also as=Table or as=PartialObjectMetadata[List] of meta.k8s.io/v1; " +
		protobufType + " for built-in kinds, and as=PartialObjectMetadata[List] for all kinds; " +
		rows.Accept + " for lists but those below /flat",
}}

// chooseFormat chooses the first format that the resource supports. Its fallback is the
// first that is not protobuf.
func (q *request) chooseFormat(formats []format) error {
	chosen := false
	for _, f := range formats {
		if f.shape == asRows && (q.info.Verb != selection.List || q.target.Flat()) {
			continue
		}
		if f.protobuf && (f.shape == table || f.shape == fullObject && !q.resource.Protobuf() || wsstream.IsWebSocketRequest(q.r) || q.ask != nil && q.ask.Messages) {
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
	if q.ask != nil && q.ask.Fallback && q.format.protobuf && q.fallback != nil {
		q.format = *q.fallback
	}
	return nil
}

func shapeOf(media string, params map[string]string) (shape, bool) {
	as := params["as"]
	if media == rows.MediaType {
		return asRows, as == "Rows"
	}
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
	if f.shape == asRows {
		return rows.MediaType
	}
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
