package queryapi

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// schemas describes Go types as encoding/json encodes their values. Structs are
// components, by name. It panics at a type that it cannot describe: response types are our
// own.
type schemas struct {
	components map[string]*spec.Schema
	types      map[string]reflect.Type // of components
}

func newSchemas() *schemas {
	return &schemas{components: map[string]*spec.Schema{}, types: map[string]reflect.Type{}}
}

var (
	// freeForm are the types whose values may be any JSON.
	freeForm      = []reflect.Type{reflect.TypeFor[any](), reflect.TypeFor[json.RawMessage](), reflect.TypeFor[runtime.RawExtension]()}
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// of returns the schema of a type.
func (s *schemas) of(t reflect.Type) *spec.Schema {
	switch pointer := reflect.PointerTo(t); {
	case slices.Contains(freeForm, t):
		return &spec.Schema{}
	case t.Kind() == reflect.Pointer:
		return s.of(t.Elem())
	case t == reflect.TypeFor[time.Time]():
		return spec.DateTimeProperty()
	case pointer.Implements(jsonMarshaler):
		panic(noSchema(t, "implements json.Marshaler"))
	case t.Implements(textMarshaler):
		return spec.StringProperty()
	case pointer.Implements(textMarshaler):
		panic(noSchema(t, "implements TextMarshaler on the pointer only"))
	}
	switch t.Kind() {
	case reflect.Struct:
		return s.component(t)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 && !t.Elem().Implements(textMarshaler) {
			return spec.StrFmtProperty("byte")
		}
		return spec.ArrayProperty(s.of(t.Elem()))
	case reflect.Map:
		if t.Key().Kind() != reflect.String && !t.Key().Implements(textMarshaler) {
			panic(noSchema(t, "has keys that are not text"))
		}
		return spec.MapProperty(s.of(t.Elem()))
	}
	return scalar(t)
}

func scalar(t reflect.Type) *spec.Schema {
	switch t.Kind() {
	case reflect.String:
		return spec.StringProperty()
	case reflect.Bool:
		return spec.BooleanProperty()
	case reflect.Int8, reflect.Int16, reflect.Int32:
		return spec.Int32Property()
	case reflect.Int, reflect.Int64:
		return spec.Int64Property()
	case reflect.Uint8, reflect.Uint16:
		return spec.Int32Property().WithMinimum(0, false)
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		return spec.Int64Property().WithMinimum(0, false)
	case reflect.Float32:
		return spec.Float32Property()
	case reflect.Float64:
		return spec.Float64Property()
	}
	panic(noSchema(t, "has no schema"))
}

// component returns a reference to a struct, which it describes on first use.
func (s *schemas) component(t reflect.Type) *spec.Schema {
	name := modelName(t)
	switch known := s.types[name]; {
	case name == "":
		panic(noSchema(t, "has no name"))
	case known == nil:
		described := new(spec.Schema).Typed("object", "")
		s.types[name], s.components[name] = t, described // before its fields, which may refer to it
		s.fields(t, described)
	case known != t:
		panic(noSchema(t, fmt.Sprintf("has the name of %s.%s", known.PkgPath(), name)))
	}
	return spec.RefSchema(componentsPath + name)
}

// modelName is the name of the component of a struct: that which SchemaName returns, or
// that of the type. Clients generate code from it.
func modelName(t reflect.Type) string {
	if m, ok := reflect.Zero(t).Interface().(interface{ SchemaName() string }); ok {
		return m.SchemaName()
	}
	return t.Name()
}

// fields adds a struct's fields, and those of structs that it embeds.
func (s *schemas) fields(t reflect.Type, into *spec.Schema) {
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		name, rest, _ := strings.Cut(tag, ",")
		options := strings.Split(rest, ",")
		optional := slices.Contains(options, "omitempty") || slices.Contains(options, "omitzero")
		if name == "" && f.Anonymous && f.Type.Kind() == reflect.Struct {
			s.fields(f.Type, into)
			continue
		}
		if tag == "-" || !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		_, twice := into.Properties[name]
		switch {
		case twice:
			panic(noSchema(t, "has "+name+" twice"))
		case slices.Contains(options, "string"):
			panic(noSchema(t, "has "+name+" in quotes"))
		case f.Type.Kind() == reflect.Pointer && (!optional || f.Anonymous):
			panic(noSchema(t, "has "+name+", which may be null or embedded"))
		}
		into.SetProperty(name, *s.of(f.Type))
		if !optional {
			into.AddRequired(name)
		}
	}
}

func noSchema(t reflect.Type, why string) string {
	return fmt.Sprintf("queryapi: no OpenAPI schema for %s.%s (%s): it %s", t.PkgPath(), t.Name(), t, why)
}
