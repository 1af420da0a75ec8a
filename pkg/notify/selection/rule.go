package selection

import (
	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/history"
)

// rule is a Rule that was validated. What is empty matches everything.
type rule struct {
	transitions, severities, kinds, policies, namespaces, members []pattern
	labels                                                        labels.Selector // of members; nil: any
}

// typeIndex is the place of a type of records. Those of policies come first.
type typeIndex int

const (
	ofVerdict typeIndex = iota
	ofAction
	ofPolicy
	ofMember
	ofScope
	ofObject
	typeCount

	lastOfPolicies = ofPolicy
)

func typeOf(t history.Type) (i typeIndex, known bool) {
	switch t {
	case history.Verdict:
		return ofVerdict, true
	case history.Action:
		return ofAction, true
	case history.Policy:
		return ofPolicy, true
	case history.Member:
		return ofMember, true
	case history.Scope:
		return ofScope, true
	case history.Object:
		return ofObject, true
	}
	return 0, false
}
