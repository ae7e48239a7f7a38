// What Grafana's Redis data source asks, by its client library (radix) and in the form in which it takes the replies:
// panels of time series, tables of JSON documents, INFO, CLIENT LIST, SLOWLOG, and the scan of keys by memory. The data
// source itself, a plug-in of Grafana, is not run.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/mediocregopher/radix/v3"
)

const start = 1_700_000_000_000

var pool *radix.Pool

func fail(arguments ...any) {
	fmt.Fprintln(os.Stderr, arguments...)
	os.Exit(1)
}

func check(name string, given, expected any) {
	if !reflect.DeepEqual(given, expected) {
		fail(fmt.Sprintf("%s: %#v is not %#v", name, given, expected))
	}
	fmt.Println("ok", name)
}

// ask takes a reply as a value of some type, as the data source does for the command.
func ask[T any](command, key string, arguments ...any) T {
	var reply T
	if err := pool.Do(radix.FlatCmd(&reply, command, key, arguments...)); err != nil {
		fail(command, key, arguments, err)
	}
	return reply
}

// refused is the error of a request, which a panel shows.
func refused(command, key string, arguments ...any) string {
	var reply any
	err := pool.Do(radix.FlatCmd(&reply, command, key, arguments...))
	if err == nil {
		fail(command, key, arguments, "is not refused")
	}
	return err.Error()
}

// number reads what is an integer, or the text of a number, as the data source does.
func number(value any) float64 {
	switch value := value.(type) {
	case int64:
		return float64(value)
	case []byte:
		number, err := strconv.ParseFloat(string(value), 64)
		if err != nil {
			fail(err)
		}
		return number
	default:
		number, err := strconv.ParseFloat(value.(string), 64)
		if err != nil {
			fail(err)
		}
		return number
	}
}

type row struct {
	legend string
	labels map[string]string
	points [][2]float64
}

func point(value any) [2]float64 {
	pair := value.([]any)
	return [2]float64{number(pair[0]), number(pair[1])}
}

// rows reads what TS.MRANGE and TS.MGET reply WITHLABELS.
func rows(reply any, isLast bool) []row {
	var found []row
	for _, element := range reply.([]any) {
		parts := element.([]any)
		labels := map[string]string{}
		for _, label := range parts[1].([]any) {
			pair := label.([]any)
			labels[string(pair[0].([]byte))] = string(pair[1].([]byte))
		}
		one := row{legend: string(parts[0].([]byte)), labels: labels}
		if isLast {
			one.points = append(one.points, point(parts[2]))
		} else {
			for _, sample := range parts[2].([]any) {
				one.points = append(one.points, point(sample))
			}
		}
		found = append(found, one)
	}
	slices.SortFunc(found, func(a, b row) int { return strings.Compare(a.legend, b.legend) })
	return found
}

func series() {
	for _, room := range []string{"hall", "attic"} {
		key := "temp:" + room
		ask[string]("TS.CREATE", key, "RETENTION", 86_400_000, "LABELS", "room", room, "kind", "temp")
		for minute := range 10 {
			value := float64(minute) + 0.5
			ask[int64]("TS.ADD", key, start+minute*60_000, value)
		}
	}
	from, to := start, start+600_000
	plain := ask[[][]string]("TS.RANGE", "temp:hall", from, to)
	check("TS.RANGE has all samples", len(plain), 10)
	check("TS.RANGE has times and values", plain[1], []string{strconv.Itoa(start + 60_000), "1.5"})
	for _, aggregation := range []string{"avg", "sum", "min", "max", "range", "count", "first", "last", "std.p", "std.s", "var.p", "var.s"} {
		buckets := ask[[][]string]("TS.RANGE", "temp:hall", from, to, "AGGREGATION", aggregation, 300_000)
		check("TS.RANGE aggregates by "+aggregation, len(buckets), 3)
	}
	backwards := ask[[][]string]("TS.REVRANGE", "temp:hall", from, to, "AGGREGATION", "avg", 300_000)
	check("TS.REVRANGE is backwards", backwards[2], []string{strconv.Itoa(start - start%300_000), "1"})
	check("a series that is not there", refused("TS.RANGE", "none", from, to), "ERR TSDB: the key does not exist")

	text := strconv.Itoa(from)
	all := rows(ask[any]("TS.MRANGE", text, to, "WITHLABELS", "FILTER", []string{"kind=temp"}), false)
	check("TS.MRANGE has labels", all[0].labels, map[string]string{"room": "attic", "kind": "temp"})
	check("TS.MRANGE has samples", all[1].points[9], [2]float64{start + 540_000, 9.5})
	some := rows(ask[any]("TS.MRANGE", text, to, "AGGREGATION", "sum", 600_000, "WITHLABELS", "FILTER",
		[]string{"kind=temp", "room!=attic"}), false)
	check("TS.MRANGE filters and aggregates", len(some) == 1 && len(some[0].points) == 2, true)
	last := rows(ask[any]("TS.MGET", "WITHLABELS", "FILTER", []string{"kind=temp"}), true)
	check("TS.MGET has the last samples", last[0].points, [][2]float64{{start + 540_000, 9.5}})
	check("TS.GET", ask[[]string]("TS.GET", "temp:hall"), []string{strconv.Itoa(start + 540_000), "9.5"})
	keys := ask[[]string]("TS.QUERYINDEX", "kind=temp")
	slices.Sort(keys)
	check("TS.QUERYINDEX", keys, []string{"temp:attic", "temp:hall"})
	check("no filter that fits", refused("TS.QUERYINDEX", "room!=hall"), "ERR TSDB: please provide at least one matcher")

	info := ask[map[string]any]("TS.INFO", "temp:hall")
	check("TS.INFO counts", info["totalSamples"], int64(10))
	check("TS.INFO has times", []any{info["firstTimestamp"], info["lastTimestamp"]}, []any{int64(start), int64(start + 540_000)})
	check("TS.INFO has memory and retention", info["memoryUsage"].(int64) > 0 && info["retentionTime"] == int64(86_400_000), true)
}

func documents() {
	ask[string]("JSON.SET", "shop", "$", `{"name":"A","open":true,"items":[{"id":1,"price":1.5},{"id":2,"price":2,"new":"yes"}]}`)
	for path, expected := range map[string]any{
		"$":      []any{map[string]any{"name": "A", "open": true, "items": []any{map[string]any{"id": 1.0, "price": 1.5}, map[string]any{"id": 2.0, "price": 2.0, "new": "yes"}}}},
		".name":  "A",
		".items": []any{map[string]any{"id": 1.0, "price": 1.5}, map[string]any{"id": 2.0, "price": 2.0, "new": "yes"}},
		"$.open": []any{true},
	} {
		var value any
		if err := json.Unmarshal([]byte(ask[string]("JSON.GET", "shop", path)), &value); err != nil {
			fail(err)
		}
		check("JSON.GET "+path, value, expected)
	}
	check("JSON.OBJKEYS", ask[[]string]("JSON.OBJKEYS", "shop", "."), []string{"name", "open", "items"})
	check("JSON.OBJLEN", ask[string]("JSON.OBJLEN", "shop", "."), "3")
	check("JSON.TYPE", ask[string]("JSON.TYPE", "shop", ".items"), "array")
	check("JSON.ARRLEN", ask[string]("JSON.ARRLEN", "shop", ".items"), "2")
}

func server() {
	ask[string]("CONFIG", "SET", "slowlog-log-slower-than", 0)
	ask[int64]("INCR", "slow")
	var calls int64
	for _, line := range strings.Split(ask[string]("INFO", "commandstats"), "\r\n") {
		name, stats, isLine := strings.Cut(line, ":")
		if !isLine {
			continue
		}
		parts := strings.Split(stats, ",")
		for at, field := range []string{"calls=", "usec=", "usec_per_call="} {
			check("commandstats of "+name+" has "+field, strings.HasPrefix(parts[at], field), true)
		}
		if name == "cmdstat_ts.range" {
			calls, _ = strconv.ParseInt(strings.TrimPrefix(parts[0], "calls="), 10, 64)
		}
	}
	check("commandstats counts TS.RANGE", calls, int64(14))
	for _, section := range []string{"server", "clients", "memory", "stats", "replication", "cpu", "keyspace"} {
		check("INFO "+section, strings.Contains(ask[string]("INFO", section), ":"), true)
	}
	// A table has the columns and their types of its first line.
	var columns int
	for _, line := range strings.Split(strings.TrimSpace(ask[string]("CLIENT", "LIST")), "\n") {
		fields := len(strings.Fields(line))
		check("CLIENT LIST has as many fields in each line", columns == 0 || fields == columns, true)
		columns = fields
	}
	var found bool
	for _, element := range ask[[]any]("SLOWLOG", "GET", 100) {
		entry := element.([]any)
		_ = entry[0].(int64) + entry[1].(int64) + entry[2].(int64)
		var words []string
		for _, word := range entry[3].([]any) {
			words = append(words, string(word.([]byte)))
		}
		found = found || strings.Join(words, " ") == "INCR slow"
	}
	check("SLOWLOG GET has the request", found, true)
}

func keys() {
	reply := ask[[]any]("SCAN", "0", "count", 1000)
	check("SCAN is through", string(reply[0].([]byte)), "0")
	types := map[string]string{}
	for _, key := range reply[1].([]any) {
		name := string(key.([]byte))
		check("MEMORY USAGE of "+name, ask[int64]("MEMORY", "USAGE", name, "SAMPLES", 5) > 0, true)
		types[name] = ask[string]("TYPE", name)
	}
	check("TYPE", types, map[string]string{"temp:hall": "TSDB-TYPE", "temp:attic": "TSDB-TYPE", "shop": "ReJSON-RL", "slow": "string"})
}

func main() {
	var err error
	if pool, err = radix.NewPool("tcp", "127.0.0.1:"+os.Getenv("PORT"), 2); err != nil {
		fail(err)
	}
	defer pool.Close()
	ask[string]("FLUSHALL", "SYNC")
	ask[string]("CONFIG", "RESETSTAT")
	series()
	documents()
	server()
	keys()
}
