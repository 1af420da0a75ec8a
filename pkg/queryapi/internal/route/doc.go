// Package route parses the paths of the query API: /fleet/… for all members, /flat/… for
// all of them with unambiguous keys, /members/<namespace>/<name>/… for one, /query/v1/…
// for queries.
//
// LocationOf resolves the names of a request. RequestInfo, the audit log, fairness and
// errors have them as the client sent them, flat or not.
//
// Filter comes first in the chain: it refuses paths that two parsers could interpret
// differently (dot segments, empty segments, encoded slashes), and puts a Target and the
// RequestInfo of the Kubernetes path into the request's context, so that audit, fairness and
// authorization work on verbs and resources. RequestInfo.Path stays the full path.
//
// Everything here is stateless and safe for concurrent use.
package route
