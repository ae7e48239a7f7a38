// What an application does through go-redis: RESP2 and RESP3, over TCP, a Unix socket and TLS.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func check(name string, given, expected any) {
	if !reflect.DeepEqual(given, expected) {
		fmt.Fprintf(os.Stderr, "%s: %#v is not %#v\n", name, given, expected)
		os.Exit(1)
	}
	fmt.Println("ok", name)
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func session(label string, options *redis.Options) {
	client := redis.NewClient(options)
	defer client.Close()
	check(label+" connect", must(client.Ping(ctx).Result()), "PONG")
	// Not ClientInfo, whose every version refuses the fields that servers have gained since.
	me := must(client.Do(ctx, "CLIENT", "INFO").Text())
	check(label+" library name", strings.Contains(me, " lib-name=go-redis"), true)
	client.FlushDB(ctx)

	results := must(client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for n := 0; n < 1000; n++ {
			pipe.Set(ctx, fmt.Sprintf("key:%d", n), n, 0)
		}
		pipe.Get(ctx, "key:999")
		return nil
	}))
	check(label+" pipeline", results[1000].(*redis.StringCmd).Val(), "999")
	keys := map[string]bool{}
	iterator := client.Scan(ctx, 0, "key:*", 50).Iterator()
	for iterator.Next(ctx) {
		keys[iterator.Val()] = true
	}
	check(label+" scan", len(keys), must(1000, iterator.Err()))

	var incremented *redis.IntCmd
	err := client.Watch(ctx, func(tx *redis.Tx) error {
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "key:1", 42, 0)
			incremented = pipe.Incr(ctx, "key:1")
			return nil
		})
		return err
	}, "key:1")
	check(label+" transaction", must(incremented.Val(), err), int64(43))
	err = client.Watch(ctx, func(tx *redis.Tx) error {
		client.Set(ctx, "key:1", "other", 0)
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "key:1", "mine", 0)
			return nil
		})
		return err
	}, "key:1")
	check(label+" watch", errors.Is(err, redis.TxFailedErr), true)

	client.HSet(ctx, "user", "name", "Ada", "year", 1815)
	check(label+" hash", must(client.HGetAll(ctx, "user").Result()),
		map[string]string{"name": "Ada", "year": "1815"})
	client.ZAdd(ctx, "board", redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2.5, Member: "b"})
	check(label+" sorted set", must(client.ZRangeWithScores(ctx, "board", 0, -1).Result()),
		[]redis.Z{{Score: 1, Member: "a"}, {Score: 2.5, Member: "b"}})
	client.SAdd(ctx, "tags", "x", "y")
	check(label+" set", len(must(client.SMembersMap(ctx, "tags").Result())), 2)

	subscriber := client.Subscribe(ctx, "news")
	defer subscriber.Close()
	must(subscriber.Receive(ctx))
	client.Publish(ctx, "news", "hello")
	check(label+" publish", must(subscriber.ReceiveMessage(ctx)).Payload, "hello")

	time.AfterFunc(100*time.Millisecond, func() { client.RPush(ctx, "queue", "job") })
	check(label+" blocking pop", must(client.BLPop(ctx, 5*time.Second, "queue").Result()),
		[]string{"queue", "job"})
	_, err = client.BLPop(ctx, time.Second, "queue").Result()
	check(label+" blocking pop times out", err, redis.Nil)
	err = client.LPush(ctx, "user", "x").Err()
	check(label+" error", err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE"), true)
	replies, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "word", "x", 0)
		pipe.Incr(ctx, "word")
		pipe.Get(ctx, "word")
		return nil
	})
	check(label+" error in a pipeline", []any{err.Error(), replies[2].(*redis.StringCmd).Val()},
		[]any{"ERR value is not an integer or out of range", "x"})
}

// Connections and subscriptions come back by themselves.
func restart() {
	options := &redis.Options{
		Addr:            "localhost:" + os.Getenv("PORT"),
		MaxRetries:      100,
		MinRetryBackoff: 100 * time.Millisecond,
		MaxRetryBackoff: 100 * time.Millisecond,
	}
	client := redis.NewClient(options)
	defer client.Close()
	runID := func() string {
		info := must(client.Info(ctx, "server").Result())
		_, rest, _ := strings.Cut(info, "run_id:")
		return rest[:40]
	}
	subscriber := client.Subscribe(ctx, "news")
	defer subscriber.Close()
	must(subscriber.Receive(ctx))
	before := runID()
	admin := redis.NewClient(&redis.Options{Addr: options.Addr, MaxRetries: -1})
	admin.ShutdownNoSave(ctx)
	admin.Close()
	check("go-redis reconnects", must(client.Set(ctx, "after", "restart", 0).Result()), "OK")
	check("go-redis server is another", runID() != before, true)
	heard := subscriber.Channel()
	for {
		must(client.Publish(ctx, "news", "again").Result())
		select {
		case message := <-heard:
			check("go-redis subscribes again", message.Payload, "again")
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func main() {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(must(os.ReadFile(os.Getenv("CA"))))
	certificate := must(tls.LoadX509KeyPair(os.Getenv("CERT"), os.Getenv("KEY")))
	tlsAddress := "localhost:" + os.Getenv("TLS_PORT")
	for _, protocol := range []int{2, 3} {
		label := fmt.Sprintf("go-redis RESP%d", protocol)
		session(label+" TCP", &redis.Options{Addr: "localhost:" + os.Getenv("PORT"), Protocol: protocol})
		session(label+" Unix",
			&redis.Options{Network: "unix", Addr: os.Getenv("SOCKET"), Protocol: protocol})
		session(label+" TLS", &redis.Options{
			Addr:      tlsAddress,
			Protocol:  protocol,
			TLSConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{certificate}},
		})
	}
	stranger := redis.NewClient(&redis.Options{Addr: tlsAddress, TLSConfig: &tls.Config{RootCAs: pool}})
	check("go-redis TLS wants a certificate", stranger.Ping(ctx).Err() != nil, true)
	stranger.Close()
	if os.Getenv("PROXIED") == "" {
		restart()
	}
}
