package policyquery

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/queryapi"
)

var _, _ queryapi.Describer = &Rego{}, Violations{}

// regoParameters are all that Rego accepts.
var regoParameters = []queryapi.Parameter{
	{Name: "query", Description: "The Rego to evaluate over data.fleet, such as count(data.fleet.objects.Pod).", Required: true},
}

// Describe implements queryapi.Describer.
func (*Rego) Describe() queryapi.Operation {
	return queryapi.Operation{
		Description: "Evaluate Rego over what the caller may list of the fleet. Each row is one way in which the query holds.",
		Parameters:  regoParameters, Response: policy.Answer{},
	}
}

// Describe implements queryapi.Describer.
func (Violations) Describe() queryapi.Operation {
	d := queryapi.Operation{
		Description: "List what policies have found, as far as the caller may read what they looked at; by groups with groupBy. " +
			"With watch=true the answer is a stream of events, one in a line: ADDED, MODIFIED and DELETED have a finding; " +
			"BOOKMARK says how far the watch is, after the events that lead there; ERROR has a Status, and is the last.",
		Response: ViolationList{}, Events: []any{Finding{}, Bookmark{}},
	}
	for _, p := range parameters {
		d.Parameters = append(d.Parameters, p.Parameter)
	}
	return d
}

// parameter is one that Violations accepts, and what takes it.
type parameter struct {
	queryapi.Parameter
	list func(*params) *[]string // where it may be given more than once
	set  func(*params, string) error
}

// What some parameters may have.
var (
	severities = policy.Severities()
	states     = []string{policy.Known.String(), policy.Unknown.String(), policy.Error.String()}
	groups     = slices.Sorted(maps.Keys(groupKeys))
)

// parameters are all that Violations accepts.
var parameters = []parameter{
	repeatedParameter("policy", "Only of these policies.", nil, func(a *params) *[]string { return &a.policies }),
	repeatedParameter("package", "Only of policies of these packages.", nil, func(a *params) *[]string { return &a.packages }),
	repeatedParameter("severity", "Only of policies of these severities.", severities, func(a *params) *[]string { return &a.severities }),
	repeatedParameter("member", "Only in these members, <namespace>/<name>.", nil, func(a *params) *[]string { return &a.members }),
	repeatedParameter("namespace", "Only in these namespaces.", nil, func(a *params) *[]string { return &a.namespaces }),
	repeatedParameter("kind", "Only on these kinds, such as Pod or Deployment.apps.", nil, func(a *params) *[]string { return &a.kinds }),
	repeatedParameter("state", "Only in these states.", states, func(a *params) *[]string { return &a.states }),
	repeatedParameter("groupBy", fmt.Sprintf("Count findings by these, %d at most, instead of listing them.", maxGroupBy), groups,
		func(a *params) *[]string { return &a.groupBy }),
	singleParameter("exempt", "true: only subjects with exempt violations; false: only those with others.", "boolean", (*params).setExempt),
	singleParameter("limit", fmt.Sprintf("How many findings a page has, 1 to %d, by default %d.", maxLimit, defaultLimit), "integer", (*params).setLimit),
	singleParameter("continue", "The page after the one that had this as its continue.", "", (*params).setContinue),
	singleParameter("watch", "Go on with changes, as events. Neither groupBy nor continue go with it.", "boolean", (*params).setWatch),
	singleParameter("resourceVersion", "Of a watch: only what has changed since the answer or event that had it, which was to the same parameters.", "", (*params).setResourceVersion),
	singleParameter("timeoutSeconds", "Of a watch: when it ends, after an hour at the latest.", "integer", (*params).setTimeout),
}

func repeatedParameter(name, about string, values []string, all func(*params) *[]string) parameter {
	return parameter{queryapi.Parameter{Name: name, Description: about, Repeated: true, Enum: values}, all, nil}
}

func singleParameter(name, about, kind string, one func(*params, string) error) parameter {
	return parameter{queryapi.Parameter{Name: name, Description: about, Type: kind}, nil, one}
}

var errBool = errors.New("is neither true nor false")

func (a *params) setExempt(value string) error {
	if value != "true" && value != "false" {
		return errBool
	}
	a.exempt = value
	return nil
}

func (a *params) setLimit(value string) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > maxLimit {
		return fmt.Errorf("is no number from 1 to %d", maxLimit)
	}
	a.limit = n
	return nil
}

func (a *params) setContinue(value string) error {
	text, err := base64.RawURLEncoding.Strict().DecodeString(value)
	a.after = &cursor{}
	if err != nil || json.Unmarshal(text, a.after) != nil || a.after.Policy == "" {
		return errors.New("is not what an answer had")
	}
	return nil
}

func (a *params) setWatch(value string) error {
	yes, err := strconv.ParseBool(value)
	if err != nil {
		return errBool
	}
	a.watch = yes
	return nil
}

func (a *params) setResourceVersion(value string) error {
	if a.resourceVersion = value; value == "0" {
		a.resourceVersion = "" // any will do
	}
	return nil
}

func (a *params) setTimeout(value string) error {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return errors.New("is no number of seconds")
	}
	a.timeout = time.Duration(n) * time.Second
	return nil
}
