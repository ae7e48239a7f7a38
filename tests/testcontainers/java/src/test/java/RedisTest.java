import static org.junit.jupiter.api.Assertions.assertEquals;

import com.redis.testcontainers.RedisContainer;
import org.junit.jupiter.api.Test;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;
import org.testcontainers.utility.DockerImageName;
import redis.clients.jedis.Jedis;

class RedisTest {
  private static final DockerImageName IMAGE =
      DockerImageName.parse("dunlin:latest").asCompatibleSubstituteFor("redis");

  private static void use(String host, int port) {
    try (Jedis client = new Jedis(host, port)) {
      client.set("a", "b");
      assertEquals("b", client.get("a"));
    }
  }

  @Test
  void theModule() {
    try (RedisContainer container = new RedisContainer(IMAGE)) {
      container.start();
      use(container.getRedisHost(), container.getRedisPort());
    }
  }

  @Test
  void aGenericContainerThatWaitsForTheLog() {
    try (GenericContainer<?> container =
        new GenericContainer<>(IMAGE)
            .withExposedPorts(6379)
            .waitingFor(Wait.forLogMessage(".*Ready to accept connections.*\\n", 1))) {
      container.start();
      use(container.getHost(), container.getMappedPort(6379));
    }
  }
}
