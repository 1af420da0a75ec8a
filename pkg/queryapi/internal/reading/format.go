package reading

import (
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// shape is what is made of objects.
type shape uint8

const (
	whole shape = iota
	partial
	table
)

// format is how an answer is written.
type format struct {
	shape shape
	yaml  bool
}

// negotiate chooses the first of what the client takes that can be given, by
// quality and then as written. A list and a single object are asked for in the
// same words but for the List of metadata.
func negotiate(r *http.Request) (format, error) {
	type offer struct {
		format
		quality float64
	}
	header := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(header) == "" {
		return format{}, nil
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
		return format{}, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
			Message: "only application/json and application/yaml are given here, also as=Table and as=PartialObjectMetadata[List] of meta.k8s.io/v1",
		}}
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
	return offers[0].format, nil
}

func shapeOf(params map[string]string) (shape, bool) {
	as := params["as"]
	if as == "" {
		return whole, true
	}
	if params["g"] != "meta.k8s.io" || params["v"] != "v1" {
		return whole, false
	}
	switch as {
	case "Table":
		return table, true
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return partial, true
	}
	return whole, false
}

func (f format) contentType() string {
	if f.yaml {
		return "application/yaml"
	}
	return "application/json"
}

// appendString appends a JSON string.
func appendString(dst []byte, s string) []byte {
	out, err := json.Marshal(s)
	if err != nil {
		panic("reading: a string cannot be encoded: " + err.Error())
	}
	return append(dst, out...)
}
