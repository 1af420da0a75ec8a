package admissioncel

import (
	"cmp"
	"errors"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// ErrNoParams is what a binding with parameterNotFoundAction Deny says of an object for
// which there are none. As the failure of an expression it denies if failurePolicy is Fail.
var ErrNoParams = errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")

// Param is an object that a paramRef may select.
type Param struct {
	Namespace, Name string
	Labels          labels.Set
	Object          map[string]any
}

// SelectParams returns the parameters with which a policy is evaluated for an object in a
// namespace, by name: once with each; once with one without an object if the policy has no
// paramKind or the binding no paramRef; not at all if there are none. Of are all objects of
// the paramKind. It does not read them.
func SelectParams(hasKind bool, ref *admissionv1.ParamRef, namespaced bool, namespace string, of []Param) ([]Param, error) {
	if !hasKind || ref == nil {
		return []Param{{}}, nil
	}
	in := ""
	switch {
	case namespaced && ref.Namespace != "":
		in = ref.Namespace
	case namespaced && namespace == "":
		return nil, errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
	case namespaced:
		in = namespace
	case ref.Namespace != "":
		return nil, errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	}
	selected, err := selectsParam(ref)
	if err != nil {
		return nil, err
	}
	var found []Param
	for _, p := range of {
		if p.Namespace == in && selected(p) {
			found = append(found, p)
		}
	}
	if len(found) == 0 && ref.ParameterNotFoundAction != nil && *ref.ParameterNotFoundAction == admissionv1.DenyAction {
		return nil, ErrNoParams
	}
	slices.SortFunc(found, func(a, b Param) int { return cmp.Compare(a.Name, b.Name) })
	return found, nil
}

func selectsParam(ref *admissionv1.ParamRef) (func(Param) bool, error) {
	switch {
	case ref.Name != "" && ref.Selector != nil:
		return nil, errors.New("paramRef.name and paramRef.selector are mutually exclusive")
	case ref.Name != "":
		return func(p Param) bool { return p.Name == ref.Name }, nil
	case ref.Selector != nil:
		selector, err := metav1.LabelSelectorAsSelector(ref.Selector)
		if err != nil {
			return nil, err
		}
		return func(p Param) bool { return selector.Matches(p.Labels) }, nil
	default:
		return nil, errors.New("one of name or selector must be provided")
	}
}
