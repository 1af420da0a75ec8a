package external

import (
	"encoding/json"
	"fmt"
	"strings"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/policy/internal/module"
)

// Schema is a JSON schema (draft 7, without $ref) of documents. nil allows everything.
type Schema struct{ of *module.DocumentSchema }

// ParseSchema returns the schema that a JSON text is; nil for an empty one.
func ParseSchema(text []byte) (*Schema, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var raw any
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("the schema is no JSON: %w", err)
	}
	of, err := module.NewDocumentSchema(raw)
	if err != nil {
		return nil, err
	}
	return &Schema{of}, nil
}

// maxProblems bounds what is said of one document.
const maxProblems = 3

func (s *Schema) check(x any) error {
	if s == nil {
		return nil
	}
	problems, err := s.of.Problems(x)
	if err != nil {
		return &Error{Message: "it cannot be compared with its schema: " + err.Error()}
	}
	if len(problems) == 0 {
		return nil
	}
	text := clip.Text(strings.Join(problems[:min(len(problems), maxProblems)], "; "), 300)
	if more := len(problems) - maxProblems; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return &Error{Message: "it does not match its schema: " + text}
}
