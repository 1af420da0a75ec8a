package intents

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// intent is an Intent as it is sent. What a remedy carries is sent as bytes: JSON in JSON would be compacted and
// escaped, and Actions are named by what is written, byte for byte.
type intent struct {
	*remediate.Intent

	Remedy remedy
	Parts  []intent // which have none
}

type remedy struct {
	*policy.Remedy

	Object []byte `json:"object"`
	Patch  []byte `json:"patch"`
}

// MarshalIntent encodes an intent for UnmarshalIntent.
func MarshalIntent(i *remediate.Intent) ([]byte, error) {
	if err := checkText(reflect.ValueOf(i).Elem(), 0); err != nil {
		return nil, err
	}
	wire := wireIntent(i)
	if i.Parts != nil {
		wire.Parts = make([]intent, 0, len(i.Parts))
	}
	for _, p := range i.Parts {
		wire.Parts = append(wire.Parts, wireIntent(p))
	}
	return json.Marshal(wire)
}

func wireIntent(i *remediate.Intent) intent {
	return intent{Intent: i, Remedy: remedy{&i.Remedy, i.Remedy.Object, i.Remedy.Patch}}
}

// intent returns what was sent, without its parts.
func (w *intent) intent() *remediate.Intent {
	if w.Intent == nil {
		w.Intent = &remediate.Intent{}
	}
	if w.Remedy.Remedy != nil {
		w.Intent.Remedy = *w.Remedy.Remedy
	}
	w.Intent.Remedy.Object, w.Intent.Remedy.Patch = w.Remedy.Object, w.Remedy.Patch
	return w.Intent
}

// UnmarshalIntent returns the intent that MarshalIntent has encoded.
func UnmarshalIntent(text []byte) (*remediate.Intent, error) {
	var wire intent
	if err := strictly(text, &wire); err != nil {
		return nil, fmt.Errorf("intent: %w", err)
	}
	out := wire.intent()
	if wire.Parts != nil {
		out.Parts = make([]*remediate.Intent, 0, len(wire.Parts))
	}
	for n := range wire.Parts {
		out.Parts = append(out.Parts, wire.Parts[n].intent())
	}
	return out, nil
}

// MarshalSpec encodes a spec for UnmarshalSpec.
func MarshalSpec(s *remediate.RolloutSpec) ([]byte, error) {
	if err := checkText(reflect.ValueOf(s).Elem(), 0); err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// UnmarshalSpec returns the spec that MarshalSpec has encoded.
func UnmarshalSpec(text []byte) (*remediate.RolloutSpec, error) {
	out := &remediate.RolloutSpec{}
	if err := strictly(text, out); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	return out, nil
}

// strictly decodes what has no fields but those that are known: a process of another version is not understood by
// half.
func strictly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

var errText = errors.New("a text is not valid UTF-8, and JSON would change it")

// maxDepth bounds how deep values are that checkText looks at: types are finite, and none here is that deep.
const maxDepth = 16

// checkText returns an error unless JSON has all texts of a value as they are.
func checkText(v reflect.Value, depth int) error {
	if depth > maxDepth {
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			return errText
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return checkText(v.Elem(), depth+1)
		}
	case reflect.Struct:
		for n := range v.NumField() {
			if v.Type().Field(n).IsExported() {
				if err := checkText(v.Field(n), depth+1); err != nil {
					return err
				}
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return nil // bytes are sent as they are
		}
		for n := range v.Len() {
			if err := checkText(v.Index(n), depth+1); err != nil {
				return err
			}
		}
	case reflect.Map:
		for of := v.MapRange(); of.Next(); {
			if err := errors.Join(checkText(of.Key(), depth+1), checkText(of.Value(), depth+1)); err != nil {
				return err
			}
		}
	}
	return nil
}

// versionOf names what processes must have in common of a policy before anything is written. Members of waves are
// not: each process knows best those that it judges. Nor is who has made a policy what it is, which a process knows as
// far as it has seen: the leader's own knowledge counts.
func versionOf(s *remediate.RolloutSpec) (string, error) {
	common := *s
	a := &common.Approval
	a.Authors, a.AuthorsProven, a.Made, a.Unsettled = nil, false, nil, false
	common.Waves = nil
	for _, w := range s.Waves {
		w.Members, w.Effect, w.Ceiling = nil, withoutMembers(w.Effect), withoutMembers(w.Ceiling)
		common.Waves = append(common.Waves, w)
	}
	text, err := MarshalSpec(&common)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12]), nil
}

// withoutMembers returns a gate with as many members as say that it has some of its own.
func withoutMembers(g *remediate.EffectGate) *remediate.EffectGate {
	if g == nil || g.Members == nil {
		return g
	}
	out := *g
	out.Members = map[string]bool{}
	return &out
}
