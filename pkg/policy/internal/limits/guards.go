package limits

// allowed are the builtins of the allowlist, by subject.
var allowed = []string{
	"eq", "assign", "equal", "neq", "lt", "lte", "gt", "gte",
	"internal.member_2", "internal.member_3", "internal.print", "internal.template_string", "internal.test_case", "print",

	"plus", "minus", "mul", "div", "rem", "abs", "round", "ceil", "floor",
	"bits.and", "bits.negate", "bits.or", "bits.rsh", "bits.xor",
	"numbers.range", "numbers.range_step", "to_number", "format_int", "units.parse", "units.parse_bytes",

	"and", "or", "intersection", "union", "count", "sum", "product", "max", "min", "sort",
	"array.concat", "array.flatten", "array.slice", "array.reverse",
	"object.filter", "object.get", "object.keys", "object.remove", "object.subset", "object.union", "object.union_n",
	"json.filter", "json.remove", "json.patch", "walk", "graph.reachable",

	"concat", "contains", "endswith", "indexof", "indexof_n", "lower", "replace", "split", "sprintf", "startswith",
	"strings.any_prefix_match", "strings.any_suffix_match", "strings.count", "strings.replace_n", "strings.reverse",
	"strings.split_n", "substring", "trim", "trim_left", "trim_prefix", "trim_right", "trim_space", "trim_suffix", "upper",
	"regex.find_all_string_submatch_n", "regex.find_n", "regex.is_valid", "regex.match", "regex.replace", "regex.split",
	"regex.template_match", "glob.match", "glob.quote_meta",

	"base64.decode", "base64.encode", "base64.is_valid", "base64url.decode", "base64url.encode", "base64url.encode_no_pad",
	"hex.decode", "hex.encode", "json.is_valid", "json.marshal", "json.unmarshal", "yaml.is_valid", "yaml.marshal",
	"yaml.unmarshal", "urlquery.decode", "urlquery.decode_object", "urlquery.encode", "urlquery.encode_object",
	"uri.is_valid", "uri.parse",

	"crypto.hmac.equal", "crypto.md5", "crypto.sha1", "crypto.sha256", "crypto.x509.parse_certificates",
	"net.cidr_contains", "net.cidr_contains_matches", "net.cidr_expand", "net.cidr_intersects", "net.cidr_is_valid", "net.cidr_merge",
	"semver.compare", "semver.is_valid", "uuid.parse",
	"time.add_date", "time.clock", "time.date", "time.diff", "time.format", "time.parse_duration_ns", "time.parse_ns",
	"time.parse_rfc3339_ns", "time.weekday",

	"is_array", "is_boolean", "is_null", "is_number", "is_object", "is_set", "is_string", "type_name",
	"rego.metadata.chain", "rego.metadata.rule",
}

// guards are the limits of builtins. Those of the allowlist without a guard
// take time proportional to their arguments, and return no more than these.
var guards = map[string]guard{
	"equal": compared, "neq": compared, "lt": compared, "lte": compared, "gt": compared, "gte": compared,
	"internal.member_2": sought(0, 1), "internal.member_3": sought(1, 2), "internal.print": weighed(0), "internal.template_string": weighed(0),

	"plus": digits, "mul": digits, "div": digits, "rem": digits, "minus": all(digits, summed(0, 1)),
	"abs": digits, "round": digits, "ceil": digits, "floor": digits,
	"bits.and": digits, "bits.negate": digits, "bits.or": digits, "bits.rsh": digits, "bits.xor": digits,
	"numbers.range": rangeSize, "numbers.range_step": rangeSize,
	"to_number": numeral, "format_int": digits, "units.parse": numeral, "units.parse_bytes": numeral,

	"and": summed(0, 1), "or": summed(0, 1), "intersection": nested, "union": nested,
	"sum": all(summed(0), digitsWithin), "product": all(summed(0), factors), "sort": weighed(0),
	"max": weighed(0), "min": weighed(0),
	"array.concat": summed(0, 1), "array.flatten": nested, "array.slice": summed(0), "array.reverse": summed(0),
	"object.filter": weighed(0, 1), "object.keys": summed(0), "object.remove": weighed(0, 1),
	"object.subset": all(weighed(0, 1), paired(0, 1)), "object.union": weighed(0, 1), "object.union_n": weighed(0),
	"json.filter": weighed(0, 1), "json.remove": weighed(0, 1), "json.patch": patch,
	"walk": weighed(0), "graph.reachable": weighed(0, 1),

	"concat": joined, "contains": texts(MaxText), "endswith": texts(MaxText), "startswith": texts(MaxText),
	"indexof": searched, "indexof_n": all(searched, occurrences(0)), "lower": texts(MaxText), "upper": texts(MaxText),
	"replace": replaced, "split": all(texts(MaxText), occurrences(1)), "sprintf": formatted,
	"strings.any_prefix_match": all(paired(0, 1), weighed(0, 1)), "strings.any_suffix_match": all(paired(0, 1), weighed(0, 1)),
	"strings.count": texts(MaxText), "strings.replace_n": replacedAll, "strings.reverse": texts(MaxText),
	"strings.split_n": all(texts(MaxText), occurrences(1)), "substring": texts(MaxText),
	"trim": trimmed, "trim_left": trimmed, "trim_prefix": texts(MaxText), "trim_right": trimmed,
	"trim_space": texts(MaxText), "trim_suffix": texts(MaxText),
	"regex.find_all_string_submatch_n": all(matched(0, 1), submatches), "regex.find_n": matched(0, 1),
	"regex.is_valid": pattern, "regex.match": matched(0, 1), "regex.replace": all(matched(1, 0), expanded),
	"regex.split": matched(0, 1), "regex.template_match": matched(0, 1), "glob.match": globbed, "glob.quote_meta": texts(MaxText),

	"base64.decode": texts(MaxText), "base64.encode": texts(MaxText), "base64.is_valid": texts(MaxText),
	"base64url.decode": texts(MaxText), "base64url.encode": texts(MaxText), "base64url.encode_no_pad": texts(MaxText),
	"hex.decode": texts(MaxText), "hex.encode": texts(MaxText),
	"json.is_valid": texts(MaxParse), "json.unmarshal": texts(MaxParse), "json.marshal": weighed(0),
	"yaml.is_valid": texts(MaxYAML), "yaml.unmarshal": texts(MaxYAML), "yaml.marshal": weighedYAML,
	"urlquery.decode": texts(MaxText), "urlquery.encode": texts(MaxText),
	"urlquery.decode_object": texts(MaxYAML), "urlquery.encode_object": weighed(0),
	"uri.is_valid": texts(MaxYAML), "uri.parse": texts(MaxYAML),

	"crypto.hmac.equal": texts(MaxText), "crypto.md5": texts(MaxText), "crypto.sha1": texts(MaxText),
	"crypto.sha256": texts(MaxText), "crypto.x509.parse_certificates": texts(MaxYAML),
	"net.cidr_contains": texts(MaxShort), "net.cidr_contains_matches": all(paired(0, 1), weighed(0, 1)), "net.cidr_expand": addresses,
	"net.cidr_intersects": texts(MaxShort), "net.cidr_is_valid": texts(MaxShort), "net.cidr_merge": merged,
	"semver.compare": texts(MaxShort), "semver.is_valid": texts(MaxShort), "uuid.parse": texts(MaxShort),
	"time.add_date": utc, "time.clock": utc, "time.date": utc, "time.diff": utc, "time.format": utc, "time.weekday": utc,
	"time.parse_duration_ns": texts(MaxShort), "time.parse_ns": layout, "time.parse_rfc3339_ns": texts(MaxShort),

	"all": weighed(0), "any": weighed(0), "net.cidr_overlap": texts(MaxShort), "re_match": matched(0, 1), "set_diff": summed(0, 1),
}
