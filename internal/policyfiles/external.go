package policyfiles

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/pkg/policy"
)

// ReadExternal reads the documents from outside the fleet that policies are to see: YAML or JSON, by source and key. Without a file
// there are none: what reads them is Unknown.
func ReadExternal(file string) (*policy.External, error) {
	if file == "" {
		return policy.NoExternal(), nil
	}
	data, err := config.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("external documents: %w", err)
	}
	text, err := policy.DecodeExternal(data, !strings.EqualFold(filepath.Ext(file), ".json"), 0, nil)
	if err != nil {
		return nil, fmt.Errorf("external documents: %s: %w", file, err)
	}
	var sources map[string]map[string]json.RawMessage
	if err := json.Unmarshal(text, &sources); err != nil {
		return nil, fmt.Errorf("external documents: %s: it is not an object of documents by source and key", file)
	}
	of := make(map[string]map[string]policy.ExternalDocument, len(sources))
	for source, documents := range sources {
		of[source] = make(map[string]policy.ExternalDocument, len(documents))
		for key, text := range documents {
			of[source][key] = policy.ExternalDocument{JSON: text, From: file}
		}
	}
	out, err := policy.NewExternal(of)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return out, nil
}

// MissingExternal returns the sources, in order, that policies of a bundle read and that External has not.
func (b *Bundle) MissingExternal() (missing []string) {
	for _, x := range b.Bindings {
		p := b.Set.Package(x.Package)
		if p == nil {
			continue
		}
		for _, source := range p.Reads.External {
			if _, has := b.External.Keys(source); !has {
				missing = append(missing, source)
			}
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}
