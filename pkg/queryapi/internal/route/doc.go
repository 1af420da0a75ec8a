// Package route reads the paths of the query API: /fleet/… over all members,
// /flat/… over all of them with unambiguous keys, /members/<namespace>/<name>/…
// over one, /query/v1/… for questions.
//
// PlaceOf says where the names of a request lead. RequestInfo has them as the
// client wrote them, flat or not, and so have audit, fairness and refusals.
//
// Filter comes first in the chain: it refuses paths that two readers could
// understand differently (dot segments, empty segments, encoded slashes), and
// puts a Target and the RequestInfo of the Kubernetes path into the request's
// context, so that audit, fairness and authorization speak of verbs and
// resources. RequestInfo.Path stays the full path.
//
// Everything here is stateless and safe for concurrent use.
package route
