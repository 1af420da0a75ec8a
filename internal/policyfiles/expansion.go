package policyfiles

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"

	"go.yaml.in/yaml/v3"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/expansion"
)

// Expansions are the ExpansionTemplates that were given, and the mutators.
type Expansions struct {
	Templates expansion.Templates
	Mutators  []string // each with where it is
}

// Add adds an object that is an ExpansionTemplate or a mutator.
func (e *Expansions) Add(at string, o map[string]any) error {
	if mutator, ok := expansion.Mutator(o); ok {
		e.Mutators = append(e.Mutators, at+": "+mutator)
	}
	if !expansion.IsTemplate(o) {
		return nil
	}
	if err := e.Templates.Add(o); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

// readExpansions reads those among the files of sources.
func readExpansions(sources []policy.Source) (*Expansions, error) {
	out := &Expansions{}
	for _, s := range sources {
		for _, f := range s.Files {
			if !policy.MayHoldDocuments(f.Path) || !expansion.Mentions(f.Data) {
				continue
			}
			if err := out.read(path.Join(s.Name, f.Path), f.Data); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func (e *Expansions) read(name string, data []byte) error {
	for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var n yaml.Node
		err := dec.Decode(&n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		var o map[string]any
		if n.Decode(&o) != nil || len(n.Content) == 0 {
			continue // what is no object is of others
		}
		if err := e.Add(fmt.Sprintf("%s:%d", name, n.Content[0].Line), o); err != nil {
			return err
		}
	}
}
