package catalog

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// storedResource is an APIResource as text.
type storedResource struct {
	Group      string `json:"g,omitempty"`
	Version    string `json:"v"`
	Kind       string `json:"k"`
	Resource   string `json:"r"`
	Namespaced bool   `json:"n,omitempty"`
	Singular   string `json:"s,omitempty"`
	Short      string `json:"a,omitempty"`
	Categories string `json:"c,omitempty"`
}

// maxStored bounds what is decoded.
const maxStored = 16 << 20

// Encode returns what Decode reads: the same text for the same resources.
func (o APIResources) Encode() (string, error) {
	var all []storedResource
	for _, kind := range slices.Sorted(maps.Keys(o)) {
		for _, r := range o[kind] { // their order is of what is preferred
			all = append(all, storedResource{
				r.GVR.Group, r.GVR.Version, r.GVK.Kind, r.GVR.Resource, r.Namespaced, r.names.singular, r.names.short, r.names.categories,
			})
		}
	}
	var out bytes.Buffer
	text := base64.NewEncoder(base64.StdEncoding, &out)
	z := gzip.NewWriter(text)
	if err := errors.Join(json.NewEncoder(z).Encode(all), z.Close(), text.Close()); err != nil {
		return "", fmt.Errorf("encoding what a member serves: %w", err)
	}
	return out.String(), nil
}

// Decode returns the resources that Encode was given. It believes no more than discovery does.
func Decode(text string) (APIResources, error) {
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
	if err != nil {
		return nil, fmt.Errorf("what a member serves: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxStored))
	if err != nil {
		return nil, fmt.Errorf("what a member serves: %w", err)
	}
	var all []storedResource
	if err := json.Unmarshal(plain, &all); err != nil {
		return nil, fmt.Errorf("what a member serves: %w", err)
	}
	o := APIResources{}
	for _, r := range all {
		o.add(schema.GroupVersion{Group: r.Group, Version: r.Version}, []metav1.APIResource{{
			Name: r.Resource, Kind: r.Kind, Namespaced: r.Namespaced, SingularName: r.Singular,
			ShortNames: splitNames(r.Short), Categories: splitNames(r.Categories), Verbs: metav1.Verbs{"list", "watch"},
		}})
	}
	o.rejectContradictions()
	return o, nil
}
