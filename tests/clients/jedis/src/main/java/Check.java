import java.io.FileInputStream;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisDataException;

/** What an application does through Jedis, under RESP2, RESP3 and TLS. */
public class Check {
  static void check(String name, Object given, Object expected) {
    if (!Objects.equals(given, expected)) {
      throw new AssertionError(name + ": " + given + " is not " + expected);
    }
    System.out.println("ok " + name);
  }

  static void session(String label, int port, JedisClientConfig config) throws Exception {
    HostAndPort address = new HostAndPort("localhost", port);
    try (Jedis client = new Jedis(address, config); Jedis other = new Jedis(address, config)) {
      check(label + " connect", client.ping(), "PONG");
      client.flushDB();

      Pipeline pipeline = client.pipelined();
      for (int n = 0; n < 1000; n++) {
        pipeline.set("key:" + n, "" + n);
      }
      Response<String> last = pipeline.get("key:999");
      pipeline.sync();
      check(label + " pipeline", last.get(), "999");

      client.watch("key:1");
      Transaction transaction = client.multi();
      transaction.set("key:1", "42");
      transaction.incr("key:1");
      check(label + " transaction", transaction.exec(), List.of("OK", 43L));
      client.watch("key:1");
      other.set("key:1", "other");
      transaction = client.multi();
      transaction.set("key:1", "mine");
      check(label + " watch", transaction.exec(), null);

      client.hset("user", Map.of("name", "Ada", "year", "1815"));
      check(label + " hash", client.hgetAll("user"), Map.of("name", "Ada", "year", "1815"));
      client.zadd("board", 2.5, "b");
      check(label + " score", client.zscore("board", "b"), 2.5);
      client.sadd("tags", "x", "y");
      check(label + " set", client.smembers("tags"), Set.of("x", "y"));

      LinkedBlockingQueue<String> heard = new LinkedBlockingQueue<>();
      CountDownLatch subscribed = new CountDownLatch(1);
      JedisPubSub listener = new JedisPubSub() {
        @Override
        public void onSubscribe(String channel, int count) {
          subscribed.countDown();
        }

        @Override
        public void onMessage(String channel, String message) {
          heard.add(channel + " " + message);
          unsubscribe();
        }
      };
      Thread thread = new Thread(() -> {
        try (Jedis subscriber = new Jedis(address, config)) {
          subscriber.subscribe(listener, "news");
        }
      });
      thread.start();
      subscribed.await(10, TimeUnit.SECONDS);
      client.publish("news", "hello");
      check(label + " publish", heard.poll(10, TimeUnit.SECONDS), "news hello");
      thread.join();

      Thread pusher = new Thread(() -> {
        try {
          Thread.sleep(100);
        } catch (InterruptedException e) {
          throw new IllegalStateException(e);
        }
        other.rpush("queue", "job");
      });
      pusher.start();
      check(label + " blocking pop", client.blpop(5, "queue"), List.of("queue", "job"));
      pusher.join();
      check(label + " blocking pop times out", client.blpop(0.1, "queue"), null);
      try {
        client.lpush("user", "x");
        throw new AssertionError("LPUSH on a hash");
      } catch (JedisDataException error) {
        check(label + " error", error.getMessage().startsWith("WRONGTYPE"), true);
      }
    }
  }

  static SSLSocketFactory trusting(String file) throws Exception {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, null);
    try (FileInputStream stream = new FileInputStream(file)) {
      store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(stream));
    }
    TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(store);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(null, trust.getTrustManagers(), null);
    return context.getSocketFactory();
  }

  public static void main(String[] arguments) throws Exception {
    SSLSocketFactory sockets = trusting(System.getenv("CA"));
    for (RedisProtocol protocol : RedisProtocol.values()) {
      DefaultJedisClientConfig.Builder config = DefaultJedisClientConfig.builder().protocol(protocol);
      session("Jedis " + protocol, Integer.parseInt(System.getenv("PORT")), config.build());
      session("Jedis " + protocol + " TLS", Integer.parseInt(System.getenv("TLS_PORT")),
          config.ssl(true).sslSocketFactory(sockets).build());
    }
  }
}
