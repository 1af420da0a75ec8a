package config

import (
	"fmt"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Print writes a configuration with the doc tags of its keys as comments,
// in the form that readConfig reads.
func Print(w io.Writer, cfg Config) error {
	var node yaml.Node
	if err := node.Encode(cfg); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	comment(&node, reflect.TypeFor[Config]())
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(&node); err != nil {
		return err
	}
	return enc.Close()
}

// comment puts the doc tags of a struct type above the keys of a mapping.
func comment(n *yaml.Node, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || n.Kind != yaml.MappingNode {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		for j := 0; j+1 < len(n.Content); j += 2 {
			if n.Content[j].Value == key && key != "" {
				n.Content[j].HeadComment = f.Tag.Get("doc")
				comment(n.Content[j+1], f.Type)
			}
		}
	}
}
