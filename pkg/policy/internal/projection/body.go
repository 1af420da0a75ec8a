package projection

import (
	"errors"
	"fmt"
	"slices"

	"federator.dev/federator/internal/canonjson"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/value"
)

// unreadable is the key of why an object itself could not be read, among the failed contributions. No view has it.
const unreadable = ""

// maxReason is how much is told of why something is not known.
const maxReason = 1000

// Writer writes projections. It belongs to one goroutine.
type Writer struct {
	body    []byte
	objects value.Arena
}

// Append appends the projection of an object. views finds a view by its ID. It reports whether there is anything
// that others need.
func (w *Writer) Append(to []byte, k *Kind, o aggregate.Object, views func(id uint32) *matview.View) ([]byte, bool) {
	if k.Digest == "" {
		return to, false
	}
	ref, failures := o.Ref(), [][2]string(nil)
	to = append(to, '{')
	empty := len(to)
	first := true
	for _, v := range k.Views {
		held := views(v.ID)
		if held == nil {
			continue
		}
		keys, why := held.KeysFor(ref)
		if why != "" {
			failures = append(failures, [2]string{v.Name, why})
			continue
		}
		if len(keys) == 0 {
			continue
		}
		if first {
			to = append(to, `"c":{`...)
		} else {
			to = append(to, ',')
		}
		first = false
		to = append(appendText(to, v.Name), ':', '{')
		for i, key := range keys {
			if i > 0 {
				to = append(to, ',')
			}
			to = append(append(appendText(to, key), ':'), held.ValuesOf(ref, key)...)
		}
		to = append(to, '}')
	}
	if !first {
		to = append(to, '}')
	}
	var object []byte
	if k.Mask != nil {
		var err error
		if object, err = w.object(k.Mask, o); err != nil {
			failures = slices.Insert(failures, 0, [2]string{unreadable, err.Error()})
		}
	}
	if len(failures) > 0 {
		to = append(comma(to, empty), `"f":{`...)
		for i, f := range failures {
			if i > 0 {
				to = append(to, ',')
			}
			to = appendText(append(appendText(to, f[0]), ':'), clip.Text(f[1], maxReason))
		}
		to = append(to, '}')
	}
	if object != nil {
		to = append(append(comma(to, empty), `"o":`...), object...)
	}
	if len(to) == empty {
		return to[:empty-1], false
	}
	return append(to, '}'), true
}

func comma(to []byte, empty int) []byte {
	if len(to) > empty {
		return append(to, ',')
	}
	return to
}

func appendText(to []byte, s string) []byte {
	text, err := value.Text(s).JSON()
	if err != nil {
		panic("projection: " + err.Error()) // any string can be written
	}
	return append(to, text...)
}

// object returns what a mask reads of an object.
func (w *Writer) object(m *mask.Mask, o aggregate.Object) (text []byte, err error) {
	if w.body, err = o.AppendBody(w.body[:0]); err != nil {
		return nil, err
	}
	w.objects.Reset()
	v, err := value.Decode(&w.objects, w.body, m)
	if err != nil {
		return nil, err
	}
	return v.JSON()
}

var (
	errBody  = errors.New("what another process says of it is malformed")
	errNoKey = errors.New("another process says nothing of it")
)

// ObjectOf returns what policies read of an object, from its projection.
func ObjectOf(body []byte) ([]byte, error) {
	if o := canonjson.Get(body, "o"); o != nil {
		return o, nil
	}
	if why, ok := failure(body, unreadable); ok {
		return nil, errors.New(why)
	}
	return nil, errNoKey
}

// failure returns why a contribution failed.
func failure(body []byte, of string) (why string, failed bool) {
	raw := canonjson.Get(body, "f", of)
	if raw == nil {
		return "", false
	}
	v, err := value.DecodeCopy(raw, mask.Whole())
	if err != nil || v.Kind() != value.String || v.Str() == "" {
		return errBody.Error(), true
	}
	return clip.Text(v.Str(), maxReason), true
}

// Contribution returns what an object contributes to a view, from its projection: at most as many bytes as the limit
// lets an object contribute. What is malformed is a contribution that failed.
func Contribution(a *value.Arena, body []byte, view string, ref aggregate.Ref, limit int) matview.Contribution {
	if why, failed := failure(body, view); failed {
		return matview.FailedContribution(ref, why)
	}
	raw := canonjson.Get(body, "c", view)
	if raw == nil {
		return matview.Contribution{}
	}
	keys, values, err := entries(a, raw)
	if err != nil {
		return matview.FailedContribution(ref, err.Error())
	}
	return matview.WrittenContribution(ref, keys, values, limit)
}

// entries reads the keys of a contribution, which have to be in order, and the text of their values.
func entries(a *value.Arena, raw []byte) (keys, values []string, err error) {
	r := canonjson.NewReader(raw)
	if r.Peek() != '{' {
		return nil, nil, errBody
	}
	for more := r.Open('{'); more; more = r.Next('}') {
		text, escaped := r.Key()
		key := string(text)
		if escaped {
			if key, err = canonjson.Unquote(text); err != nil {
				return nil, nil, fmt.Errorf("%w: %w", errBody, err)
			}
		}
		list := r.Value()
		if r.Err() != nil {
			break
		}
		a.Reset()
		v, err := value.Decode(a, list, mask.Whole())
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("%w: %w", errBody, err)
		case v.Kind() != value.Array || v.Len() == 0 || len(keys) > 0 && keys[len(keys)-1] >= key:
			return nil, nil, errBody
		}
		keys, values = append(keys, key), append(values, string(list))
	}
	if err := r.End(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errBody, err)
	}
	return keys, values, nil
}
